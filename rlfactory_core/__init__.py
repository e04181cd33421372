"""rlfactory: reinforcement-learning post-training of LLMs on multi-turn tool use, one plugin a task.

Everything here is loaded on first use, so that ``import rlfactory_core`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlfactory_core.config import RunConfig, Section
    from rlfactory_core.env import ToolEnv
    from rlfactory_core.errors import RlfactoryError, ToolError, ToolUnavailableError, VerifierError
    from rlfactory_core.hookspecs import hookimpl
    from rlfactory_core.protocols import ToolContext
    from rlfactory_core.task import Task
    from rlfactory_core.tools.function import tool
    from rlfactory_core.types import Message, Sample, Score, Trajectory, Verdict

_HOME = {
    "RunConfig": "config",
    "Section": "config",
    "ToolEnv": "env",
    "RlfactoryError": "errors",
    "ToolError": "errors",
    "ToolUnavailableError": "errors",
    "VerifierError": "errors",
    "hookimpl": "hookspecs",
    "ToolContext": "protocols",
    "Task": "task",
    "tool": "tools.function",
    "Message": "types",
    "Sample": "types",
    "Score": "types",
    "Trajectory": "types",
    "Verdict": "types",
}

__version__ = "0.1.0"
__all__ = [
    "Message",
    "RlfactoryError",
    "RunConfig",
    "Sample",
    "Score",
    "Section",
    "Task",
    "ToolContext",
    "ToolEnv",
    "ToolError",
    "ToolUnavailableError",
    "Trajectory",
    "Verdict",
    "VerifierError",
    "__version__",
    "hookimpl",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"rlfactory_core.{_HOME[name]}"), name)
    raise AttributeError(f"module 'rlfactory_core' has no attribute {name!r}")
