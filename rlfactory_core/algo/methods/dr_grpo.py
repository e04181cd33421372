"""Dr. GRPO, "GRPO done right": Liu et al. 2025, arXiv 2503.20783."""

from __future__ import annotations

from rlfactory_core.algo.methods.method import Method

# Section 3.2: neither a division by the group's standard deviation nor one by the attempt's length.
DR_GRPO = Method("dr_grpo", {"advantage": "dr_grpo", "aggregation": "constant", "clip_low": 0.2, "clip_high": 0.2})
