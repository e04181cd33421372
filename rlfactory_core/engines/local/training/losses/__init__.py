"""The policy losses by name; each file has one, and its formula's source."""

from rlfactory_core.engines.local.training.losses.cispo import cispo
from rlfactory_core.engines.local.training.losses.gspo import gspo
from rlfactory_core.engines.local.training.losses.ppo import ppo
from rlfactory_core.engines.local.training.losses.sapo import sapo
from rlfactory_core.engines.local.training.losses.tokens import Clip, PolicyLoss, TokenLoss, Tokens

LOSSES: dict[str, PolicyLoss] = {"ppo": ppo, "gspo": gspo, "cispo": cispo, "sapo": sapo}

__all__ = ["LOSSES", "Clip", "PolicyLoss", "TokenLoss", "Tokens"]
