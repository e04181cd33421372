"""Prompt schedules, advantages, batches, and the statistics of an evaluation."""

from rlfactory_core.algo.advantages import Credit, check_advantage, group_advantages
from rlfactory_core.algo.batch import build_batches
from rlfactory_core.algo.evaluation import EvalPass, eval_passes, summarise
from rlfactory_core.algo.schedule import PromptSchedule
from rlfactory_core.algo.turn_advantages import turn_rewards

__all__ = [
    "Credit",
    "EvalPass",
    "PromptSchedule",
    "build_batches",
    "check_advantage",
    "eval_passes",
    "group_advantages",
    "summarise",
    "turn_rewards",
]
