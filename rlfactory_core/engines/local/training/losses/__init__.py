"""The policy losses, which ``rlfactory_loss_functions`` registers; each file has one, and its formula's source."""

from rlfactory_core.engines.local.training.losses.ppo import ppo
from rlfactory_core.engines.local.training.losses.tokens import Clip, PolicyLoss, TokenLoss, Tokens

__all__ = ["Clip", "PolicyLoss", "TokenLoss", "Tokens", "ppo"]
