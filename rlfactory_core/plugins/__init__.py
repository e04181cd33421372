"""Finds, loads and compares plugins. Listing them imports none; loading is by name, one at a time."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
