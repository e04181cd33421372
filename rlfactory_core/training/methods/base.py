"""What the loop asks a method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rlfactory_core.types import Group, TrainBatch


class Method(Protocol):
    """Gives the sampled tokens of a step credit."""

    def teaches_nothing(self, group: Group) -> bool:
        """Whether a group is played again with another prompt, if ``train.refill`` is set."""

    def batches(self, groups: Sequence[Group], step: int) -> Sequence[TrainBatch]:
        """What the engine is given to update with, of this process's groups."""
