"""Rewards: rules that compare answers, and the code that runs all scorers and adds their weighted scores."""

from rlfactory_core.rewards.layer import RewardLayer
from rlfactory_core.rewards.scorers import (
    F1,
    ExactMatch,
    Format,
    accepted_answers,
    exact_match,
    extract_answer,
    f1,
    last_answer,
    normalize,
)

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
