"""Tools and the one contract by which every kind of tool is called.

A further kind of tool is a `protocols.Tool`. Tools that are known only after a start have a `protocols.ToolSource`.
"""

from rlfactory_core.tools.attempt import error_line, is_infra_error
from rlfactory_core.tools.cache import AnswerCache, DiskCache, MemoryCache
from rlfactory_core.tools.function import FunctionTool, tool
from rlfactory_core.tools.limits import CircuitBreaker
from rlfactory_core.tools.manager import DefaultToolManager
from rlfactory_core.tools.mending import MendedSchema, mended
from rlfactory_core.tools.schema import undescribed
from rlfactory_core.tools.settings import CachePlace, ToolLimits, ToolsConfig
from rlfactory_core.tools.sources import OpenTools, ServerState, ServerTool, ToolSourceFactoryTraits
from rlfactory_core.utils.json_types import with_json_types
from rlfactory_core.utils.text import to_text

__all__ = [
    "AnswerCache",
    "CachePlace",
    "CircuitBreaker",
    "DefaultToolManager",
    "DiskCache",
    "FunctionTool",
    "MemoryCache",
    "MendedSchema",
    "OpenTools",
    "ServerState",
    "ServerTool",
    "ToolLimits",
    "ToolSourceFactoryTraits",
    "ToolsConfig",
    "error_line",
    "is_infra_error",
    "mended",
    "to_text",
    "tool",
    "undescribed",
    "with_json_types",
]
