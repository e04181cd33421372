"""Search as a tool, and questions that need it, over a corpus, a retrieval server or made-up worlds.

To extend the task, derive from `SearchTask`. Everything here is loaded on first use, because finding the plugin imports
this package.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
