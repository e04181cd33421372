"""rlfactory: reinforcement-learning post-training of LLMs on multi-turn tool use, one plugin a task.

Everything here is loaded on first use, so that ``import rlfactory_core`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlfactory_core.config import RunConfig, Section
    from rlfactory_core.delegates.agent import agent_tool
    from rlfactory_core.delegates.model import model_tool
    from rlfactory_core.deprecation import RlfactoryDeprecationWarning
    from rlfactory_core.env import ToolEnv
    from rlfactory_core.errors import (
        BackendError,
        RlfactoryError,
        ToolArgumentsError,
        ToolError,
        ToolUnavailableError,
        UsageError,
        VerifierError,
    )
    from rlfactory_core.hookspecs import hookimpl
    from rlfactory_core.lazy import Lazy, LazyChatFormat, LazyEngine, LazyReward
    from rlfactory_core.protocols import EnvStart, EnvStep, ToolManager
    from rlfactory_core.run_context import RunContext
    from rlfactory_core.task import Task
    from rlfactory_core.tiny import TinyModelRecipe, WarmStartStage
    from rlfactory_core.tool_context import ToolContext
    from rlfactory_core.tools.function import tool
    from rlfactory_core.tools.interpreter import code_interpreter
    from rlfactory_core.tools.mcp.source import McpSource
    from rlfactory_core.tools.qwen_agent import qwen_tool, qwen_tools
    from rlfactory_core.types import (
        FaultKind,
        Group,
        Message,
        Sample,
        Score,
        StopReason,
        ToolCall,
        ToolResult,
        ToolSpec,
        Trajectory,
        Verdict,
    )

_HOME = {
    "RunContext": "run_context",
    "RlfactoryDeprecationWarning": "deprecation",
    "RunConfig": "config",
    "Section": "config",
    "agent_tool": "delegates.agent",
    "model_tool": "delegates.model",
    "ToolEnv": "env",
    "BackendError": "errors",
    "RlfactoryError": "errors",
    "ToolArgumentsError": "errors",
    "ToolError": "errors",
    "ToolUnavailableError": "errors",
    "UsageError": "errors",
    "VerifierError": "errors",
    "hookimpl": "hookspecs",
    "Lazy": "lazy",
    "LazyChatFormat": "lazy",
    "LazyEngine": "lazy",
    "LazyReward": "lazy",
    "EnvStart": "protocols",
    "EnvStep": "protocols",
    "ToolContext": "tool_context",
    "ToolManager": "protocols",
    "Task": "task",
    "TinyModelRecipe": "tiny",
    "WarmStartStage": "tiny",
    "McpSource": "tools.mcp.source",
    "code_interpreter": "tools.interpreter",
    "tool": "tools.function",
    "qwen_tool": "tools.qwen_agent",
    "qwen_tools": "tools.qwen_agent",
    "FaultKind": "types",
    "Group": "types",
    "Message": "types",
    "Sample": "types",
    "Score": "types",
    "StopReason": "types",
    "ToolCall": "types",
    "ToolResult": "types",
    "ToolSpec": "types",
    "Trajectory": "types",
    "Verdict": "types",
}

__version__ = "0.1.0"
__all__ = [
    "BackendError",
    "EnvStart",
    "EnvStep",
    "FaultKind",
    "Group",
    "Lazy",
    "LazyChatFormat",
    "LazyEngine",
    "LazyReward",
    "McpSource",
    "Message",
    "RlfactoryDeprecationWarning",
    "RlfactoryError",
    "RunConfig",
    "RunContext",
    "Sample",
    "Score",
    "Section",
    "StopReason",
    "Task",
    "TinyModelRecipe",
    "ToolArgumentsError",
    "ToolCall",
    "ToolContext",
    "ToolEnv",
    "ToolError",
    "ToolManager",
    "ToolResult",
    "ToolSpec",
    "ToolUnavailableError",
    "Trajectory",
    "UsageError",
    "Verdict",
    "VerifierError",
    "WarmStartStage",
    "__version__",
    "agent_tool",
    "code_interpreter",
    "hookimpl",
    "model_tool",
    "qwen_tool",
    "qwen_tools",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"rlfactory_core.{_HOME[name]}"), name)
    raise AttributeError(f"module 'rlfactory_core' has no attribute {name!r}")
