"""What a red team found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest

from rlfactory_core.testing.redteam.mutation import Mutation


@dataclass(frozen=True, slots=True)
class Attempt:
    """One answer, and what it got.

    Args:
        variant: of the mutation.
        sample: its id.
        said: shortened, in one line.
        reward: of the whole trajectory.
        threshold: from which it counts as accepted, on this sample.
        accepted: None: a fault masked it, so nobody can know.
        succeeded: the same by the task's success component alone.
        components: the scorers' own numbers, unweighted.
        by: the scorer to which the reward, or the lack of it, is due most.
    """

    mutation: Mutation
    variant: str
    sample: str
    said: str
    reward: float
    threshold: float
    accepted: bool | None
    succeeded: bool | None
    components: Mapping[str, float]
    by: str

    @property
    def is_mistake(self) -> bool:
        """Whether the reward is wrong about it."""
        return (self.mutation.kind, self.accepted) in (("wrong", True), ("right", False))

    @property
    def margin(self) -> float:
        """How far on the wrong side of the threshold, or on the right one."""
        return abs(self.reward - self.threshold)


@dataclass(frozen=True, slots=True)
class Tally:
    """Answers counted; ``masked`` are in neither of the others."""

    tried: int
    accepted: int
    masked: int

    @property
    def accept_rate(self) -> float:
        """In [0, 1]; 0 where nothing was tried."""
        return self.accepted / self.tried if self.tried else 0.0

    @property
    def reject_rate(self) -> float:
        return 1.0 - self.accept_rate if self.tried else 0.0


@dataclass(frozen=True, slots=True)
class RedTeamResult:
    """All that was tried.

    Args:
        success: the reward that tells whether an attempt succeeded.
        samples: that were attacked.
        left_out: why a sample was not, by its id.
        mutations: in the order in which they were tried.
    """

    plugin: str
    success: str
    samples: tuple[str, ...]
    left_out: Mapping[str, str]
    mutations: tuple[Mutation, ...]
    attempts: tuple[Attempt, ...]
    seconds: float

    def tally(self, mutation: Mutation) -> Tally:
        """Of one mutation."""
        return _tally([each.accepted for each in self.attempts if each.mutation is mutation])

    def of_kind(self, kind: str, *, by_success: bool = False) -> Tally:
        """Of all wrong answers, whose accept rate is the false-accept rate, or of all right ones, whose reject rate is
        the false-reject rate.

        Args:
            by_success: as the success component alone has it.
        """
        found = [each for each in self.attempts if each.mutation.kind == kind]
        return _tally([each.succeeded if by_success else each.accepted for each in found])

    @property
    def masked(self) -> int:
        return sum(each.accepted is None for each in self.attempts)

    def worst(self, most: int = 6) -> tuple[Attempt, ...]:
        """The clearest mistake of each mutation, those with most mistakes first; then the second ones, …"""
        groups: dict[str, list[Attempt]] = {}
        for each in self.attempts:
            if each.is_mistake:
                groups.setdefault(each.mutation.name, []).append(each)
        ranked = (
            sorted(group, key=lambda each: -each.margin) for group in sorted(groups.values(), key=len, reverse=True)
        )
        rows = zip_longest(*ranked)
        return tuple([each for row in rows for each in row if each is not None][:most])


def _tally(accepted: list[bool | None]) -> Tally:
    known = [each for each in accepted if each is not None]
    return Tally(len(known), sum(known), len(accepted) - len(known))
