"""Tools for tests of tasks, tools and rewards without a model or a server.

Everything here is loaded on first use: pytest loads this package in every session, for its fixtures.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
