"""Tasks, which ``--plugin NAME`` runs: how a task is loaded, solved, demonstrated and played."""

from rlfactory_core.utils.lazy_names import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)
