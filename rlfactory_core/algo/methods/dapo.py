"""DAPO: Yu et al. 2025, arXiv 2503.14476."""

from __future__ import annotations

from rlfactory_core.algo.methods.method import Method
from rlfactory_core.config import RewardConfig
from rlfactory_core.config.sections import LimitsConfig

BUFFER = 5  # the punishment begins at 4/5 of the limit, as the paper's 16,384 of 20,480 tokens


def overlong(limits: LimitsConfig) -> tuple[RewardConfig]:
    """The soft overlong punishment, equation 13, up to the most tokens that an attempt can sample."""
    limit = min(limits.max_tokens, limits.max_turns * limits.max_turn_tokens)
    options = {"name": "overlong", "weight": 1.0, "limit": limit, "buffer": max(1, limit // BUFFER)}
    return (RewardConfig.model_validate(options),)


# Equation 8: the clipped surrogate with a higher upper bound, and the mean over all tokens; no KL term.
DAPO = Method(
    "dapo", {"advantage": "grpo", "aggregation": "token", "clip_low": 0.2, "clip_high": 0.28, "kl": 0.0}, overlong
)
