"""The training loop: play attempts, update the weights, evaluate, record, save and stop.

``loop.py`` is the loop. An `engines.base.Engine` owns the weights. This room names no engine and imports no PyTorch.
To add a method: write one beside ``methods/grpo.py``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
