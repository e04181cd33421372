"""DAPO: Yu et al. 2025, arXiv 2503.14476."""

from __future__ import annotations

from typing import Any

from rlfactory_core.algo.methods.method import Method

BUFFER = 5  # the punishment begins at 4/5 of the limit, as the paper's 16,384 of 20,480 tokens


def overlong(limit: int) -> tuple[dict[str, Any]]:
    """The soft overlong punishment, equation 13."""
    return ({"name": "overlong", "weight": 1.0, "limit": limit, "buffer": max(1, limit // BUFFER)},)


# Equation 8: the clipped surrogate with a higher upper bound, and the mean over all tokens; no KL term.
DAPO = Method(
    "dapo", {"advantage": "grpo", "aggregation": "token", "clip_low": 0.2, "clip_high": 0.28, "kl": 0.0}, overlong
)
