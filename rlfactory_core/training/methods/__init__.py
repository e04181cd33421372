"""Methods: where the trajectories of a step come from, and how their tokens get credit. One file each."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rlfactory_core.training.methods.grpo import GroupComparison
from rlfactory_core.training.methods.imitation import Imitation
from rlfactory_core.types import Group, TrainBatch, Trajectory

__all__ = ["GroupComparison", "Imitation", "Method"]


class Method(Protocol):
    """Gives the sampled tokens of a step credit."""

    @property
    def plays(self) -> bool:
        """Whether the policy plays the attempts; otherwise they are demonstrations."""

    def teaches_nothing(self, group: Group) -> bool:
        """Whether a group is played again with another prompt, if ``train.refill`` is set."""

    def batches(self, groups: Sequence[Group], step: int) -> Sequence[TrainBatch]:
        """The batches of this process's groups, for `Engine.update`."""

    def left_out(self, groups: Sequence[Group]) -> Sequence[Trajectory]:
        """The demonstrations that are not trained on, of which the user is warned; empty if the policy plays."""

    def metrics(self, groups: Sequence[Group]) -> Mapping[str, float]:
        """Metrics that only this method has, over the groups of all processes."""
