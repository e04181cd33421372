"""The training loop: what is played, what is trained, and what becomes of it.

``loop.py`` is the loop. An `engines.base.Engine` has the weights; this room knows none by name, and imports no PyTorch.
To add a method: write one beside ``methods/grpo.py``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
