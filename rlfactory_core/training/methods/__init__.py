"""Methods: where the trajectories of a step come from, and how their tokens get credit. One file each."""

from collections.abc import Sequence
from typing import Protocol

from rlfactory_core.training.methods.grpo import GroupComparison
from rlfactory_core.types import Group, TrainBatch

__all__ = ["GroupComparison", "Method"]


class Method(Protocol):
    """Gives the sampled tokens of a step credit."""

    def teaches_nothing(self, group: Group) -> bool:
        """Whether a group is played again with another prompt, if ``train.refill`` is set."""

    def batches(self, groups: Sequence[Group], step: int) -> Sequence[TrainBatch]:
        """What the engine is given to update with, of this process's groups."""
