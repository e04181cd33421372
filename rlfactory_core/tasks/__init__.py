"""Tasks, which ``--plugin NAME`` runs: how a task is loaded, solved, demonstrated and played."""

from rlfactory_core.tasks.scorers import ScorerLifecycle
from rlfactory_core.tasks.task import Task

__all__ = ["ScorerLifecycle", "Task"]
