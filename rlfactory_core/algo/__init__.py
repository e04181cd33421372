"""Prompt schedules, advantages, batches, and the statistics of an evaluation."""

from rlfactory_core.algo.advantages import check_advantage, group_advantages
from rlfactory_core.algo.batch import build_batches
from rlfactory_core.algo.evaluation import EvalPass, eval_passes, summarise
from rlfactory_core.algo.schedule import PromptSchedule

__all__ = [
    "EvalPass",
    "PromptSchedule",
    "build_batches",
    "check_advantage",
    "eval_passes",
    "group_advantages",
    "summarise",
]
