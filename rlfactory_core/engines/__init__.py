"""The engines that train a policy, and the parts that they share; each is loaded on first use."""

from rlfactory_core.utils.lazy_names import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)
