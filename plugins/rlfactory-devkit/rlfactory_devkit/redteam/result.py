"""The result of a red team."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest

from rlfactory_devkit.redteam.mutation import Mutation


@dataclass(frozen=True, slots=True)
class Attempt:
    """One answer and its reward."""

    mutation: Mutation
    variant: str  # of the mutation
    sample: str  # the sample's id
    said: str  # the answer, shortened to one line
    reward: float  # of the whole trajectory
    threshold: float  # the reward from which an answer to this sample counts as accepted
    accepted: bool | None  # None if a fault masked the episode
    succeeded: bool | None  # as `accepted`, by the task's success component alone
    components: Mapping[str, float]  # the scorers' values, unweighted
    by: str  # the scorer that changed the reward most: from silence's if accepted, else from the oracle's

    @property
    def is_mistake(self) -> bool:
        """Whether the reward accepts a wrong answer or rejects a right one."""
        return (self.mutation.kind, self.accepted) in (("wrong", True), ("right", False))


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of answers; a masked one counts neither as tried nor as accepted."""

    tried: int
    accepted: int
    masked: int

    @classmethod
    def of(cls, accepted: list[bool | None]) -> Tally:
        known = [each for each in accepted if each is not None]
        return cls(len(known), sum(known), len(accepted) - len(known))

    @property
    def accept_rate(self) -> float:
        """In [0, 1]; 0 if nothing was tried."""
        return self.accepted / self.tried if self.tried else 0.0

    @property
    def reject_rate(self) -> float:
        return 1.0 - self.accept_rate if self.tried else 0.0


@dataclass(frozen=True, slots=True)
class RedTeamResult:
    """All attempts."""

    plugin: str
    success: str  # the name of the task's success component
    samples: tuple[str, ...]  # the ids of the samples that were used
    left_out: Mapping[str, str]  # why a sample was not used, by its id
    mutations: tuple[Mutation, ...]  # in the order in which they were tried
    attempts: tuple[Attempt, ...]
    seconds: float

    def tally(self, mutation: Mutation) -> Tally:
        """The counts of one mutation."""
        return Tally.of([each.accepted for each in self.attempts if each.mutation is mutation])

    def of_kind(self, kind: str, *, by_success: bool = False) -> Tally:
        """The counts of all wrong or of all right answers.

        The accept rate of wrong answers is the false-accept rate; the reject rate of right ones is the false-reject
        rate.

        Args:
            by_success: count by the success component alone.
        """
        found = [each for each in self.attempts if each.mutation.kind == kind]
        return Tally.of([each.succeeded if by_success else each.accepted for each in found])

    @property
    def masked(self) -> int:
        return sum(each.accepted is None for each in self.attempts)

    def worst(self, most: int = 6) -> tuple[Attempt, ...]:
        """The clearest mistake of each mutation, ordered by the mutation's number of mistakes; then the second ones."""
        groups: dict[str, list[Attempt]] = {}
        for each in self.attempts:
            if each.is_mistake:
                groups.setdefault(each.mutation.name, []).append(each)
        rows = zip_longest(
            *(
                sorted(group, key=lambda each: -abs(each.reward - each.threshold))
                for group in sorted(groups.values(), key=len, reverse=True)
            )
        )
        return tuple([each for row in rows for each in row if each is not None][:most])
