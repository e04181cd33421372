"""A task of rlfactory as one of inspect_ai, which evaluates models; loaded on first use, as it needs inspect_ai."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
