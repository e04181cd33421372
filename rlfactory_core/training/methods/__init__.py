"""Methods: where the trajectories of a step come from, and how their tokens get credit. One file each."""

from rlfactory_core.training.methods.base import Method
from rlfactory_core.training.methods.grpo import GroupComparison

__all__ = ["GroupComparison", "Method"]
