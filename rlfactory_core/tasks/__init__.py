"""Tasks, which ``--plugin NAME`` runs: how a task is loaded, solved, demonstrated and played."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
