"""Tools for tests of tasks, tools and rewards without a model or a server.

Everything here is loaded on first use: pytest loads this package in every session, for its fixtures.
"""

from rlfactory_core.utils.lazy_names import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)
