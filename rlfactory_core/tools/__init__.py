"""Tools and the one contract by which every kind of tool is called."""

from rlfactory_core.tools.cache import AnswerCache, DiskCache, MemoryCache
from rlfactory_core.tools.function import FunctionTool, tool
from rlfactory_core.tools.limits import CircuitBreaker
from rlfactory_core.tools.manager import DefaultToolManager
from rlfactory_core.utils.text import to_text

__all__ = [
    "AnswerCache",
    "CircuitBreaker",
    "DefaultToolManager",
    "DiskCache",
    "FunctionTool",
    "MemoryCache",
    "to_text",
    "tool",
]
