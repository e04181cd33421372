"""Tools of MCP servers and of Qwen-Agent, with the same deadlines, limits and faults as any other tool.

Everything here is loaded on first use, because finding the plugin imports this package.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
