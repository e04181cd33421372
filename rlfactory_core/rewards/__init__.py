"""Rewards: rules that compare answers, and the code that runs all scorers and adds their weighted scores."""

from rlfactory_core.rewards.answers import answer_words, exact_match, f1, normalize, number, squad_em, squad_f1
from rlfactory_core.rewards.layer import RewardLayer
from rlfactory_core.rewards.scorers import (
    F1,
    ExactMatch,
    Format,
    SquadEM,
    SquadF1,
    accepted_answers,
    extract_answer,
    last_answer,
)
from rlfactory_core.rewards.trl import TrlReward

__all__ = [
    "F1",
    "ExactMatch",
    "Format",
    "RewardLayer",
    "SquadEM",
    "SquadF1",
    "TrlReward",
    "accepted_answers",
    "answer_words",
    "exact_match",
    "extract_answer",
    "f1",
    "last_answer",
    "normalize",
    "number",
    "squad_em",
    "squad_f1",
]
