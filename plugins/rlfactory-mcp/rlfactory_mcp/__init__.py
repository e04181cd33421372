"""Tools of MCP servers and of Qwen-Agent, with the same deadlines, limits and faults as any other tool.

Everything here is loaded on first use, because finding the plugin imports this package.
"""

from rlfactory_core.utils.lazy_names import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)
