"""The training loop: what is played, what is trained, and what becomes of it.

``loop.py`` is the loop. An `engines.base.Engine` has the weights; this room knows none by name, and imports no PyTorch.
To add a method: write one beside ``methods/grpo.py``.
"""
