"""What trains: the embedded engine on plain torch, and verl.

The names here are what both are made of beside their training loops, for an engine of one's own; loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlfactory_core.advantages import check_advantage, group_advantages
    from rlfactory_core.evaluation import EvalPass, eval_passes, summarise
    from rlfactory_core.reporting.folder import replace_link, write_atomic
    from rlfactory_core.reporting.loggers import MetricsLogger, open_loggers
    from rlfactory_core.reporting.metrics import eval_metrics
    from rlfactory_core.rollout import derive_seed
    from rlfactory_core.schedule import PromptSchedule
    from rlfactory_core.task_runtime import TaskRuntime

_HOME = {
    "EvalPass": "evaluation",
    "MetricsLogger": "reporting.loggers",
    "PromptSchedule": "schedule",
    "TaskRuntime": "task_runtime",
    "check_advantage": "advantages",
    "derive_seed": "rollout",
    "eval_metrics": "reporting.metrics",
    "eval_passes": "evaluation",
    "group_advantages": "advantages",
    "open_loggers": "reporting.loggers",
    "replace_link": "reporting.folder",
    "summarise": "evaluation",
    "write_atomic": "reporting.folder",
}

__all__ = [
    "EvalPass",
    "MetricsLogger",
    "PromptSchedule",
    "TaskRuntime",
    "check_advantage",
    "derive_seed",
    "eval_metrics",
    "eval_passes",
    "group_advantages",
    "open_loggers",
    "replace_link",
    "summarise",
    "write_atomic",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"rlfactory_core.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
