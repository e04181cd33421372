"""Tools and the one contract by which every kind of tool is called."""

from rlfactory_core.tools.function import FunctionTool, tool
from rlfactory_core.tools.manager import DefaultToolManager

__all__ = ["DefaultToolManager", "FunctionTool", "tool"]
