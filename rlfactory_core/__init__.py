"""rlfactory: reinforcement-learning post-training of LLMs on multi-turn tool use, one plugin a task.

Everything here is loaded on first use, so that ``import rlfactory_core`` costs next to nothing.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
