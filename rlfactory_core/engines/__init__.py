"""The engines that train a policy, and the parts that they share; each is loaded on first use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
