"""The policy losses, one per file with the source of its formula, and the objective that they are a part of.

To add one: copy ``ppo.py``, and register it in ``builtin.py`` (in a plugin: by the hook ``rlfactory_loss_functions``).
They compute with the methods of PyTorch's tensors, and do not import it.
"""

from rlfactory_core.algo.losses.objective import LossOptions, objective
from rlfactory_core.algo.losses.ppo import ppo
from rlfactory_core.algo.losses.tokens import Clip, PolicyLoss, TokenLoss, Tokens

__all__ = ["Clip", "LossOptions", "PolicyLoss", "TokenLoss", "Tokens", "objective", "ppo"]
