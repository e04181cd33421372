"""Rewards: answer comparison, the rule scorers built on it, and the layer that runs and weighs all scorers."""

from rlfactory_core.rewards.answers import exact_match, extract_answer, f1, normalize
from rlfactory_core.rewards.layer import RewardLayer
from rlfactory_core.rewards.scorers import F1, ExactMatch, Format, accepted_answers, last_answer

__all__ = [
    "F1",
    "ExactMatch",
    "Format",
    "RewardLayer",
    "accepted_answers",
    "exact_match",
    "extract_answer",
    "f1",
    "last_answer",
    "normalize",
]
