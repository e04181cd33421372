"""Methods of the field: names of ``train.loss`` that stand for a policy loss with other keys; each has a file."""

from rlfactory_core.algo.methods.dapo import DAPO
from rlfactory_core.algo.methods.dr_grpo import DR_GRPO
from rlfactory_core.algo.methods.method import Method

METHODS = {
    "dapo": DAPO,
    "dr_grpo": DR_GRPO,
}

__all__ = ["METHODS", "Method"]
