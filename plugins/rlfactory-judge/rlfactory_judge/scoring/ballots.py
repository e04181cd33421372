"""The answers of a group that are compared, ballots about a few of them, and the resulting scores."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from rlfactory_core.errors import VerifierError
from rlfactory_core.types import Group, Trajectory
from rlfactory_judge.contract import Form, Reply
from rlfactory_judge.rubrics.transcript import final_answer
from rlfactory_judge.service.polling import cost, divided, worst_failure


@dataclass(frozen=True, slots=True)
class Candidates:
    """The different answers of a group, and the attempts that gave them.

    Args:
        answers: one attempt for each, in an order that does not depend on that of the attempts.
        places: of each attempt in ``answers``; None: it is not compared.
    """

    answers: tuple[Trajectory, ...]
    places: tuple[int | None, ...]
    seed: str

    @staticmethod
    def of(group: Group, seed: int) -> Candidates:
        """The candidates of a group, without attempts that are masked or wrote nothing.

        Two answers are equal if `final_answer` is equal, whatever the earlier turns were.
        """
        texts = [None if one.masked or not one.turns else final_answer(one).strip() for one in group.trajectories]
        order = sorted({text for text in texts if text is not None})
        first = dict(zip(reversed(texts), reversed(group.trajectories), strict=True))
        places = tuple(None if text is None else order.index(text) for text in texts)
        return Candidates(tuple(first[text] for text in order), places, "\n".join((str(seed), group.sample.id, *order)))

    def shuffled(self, number: int, kept: Sequence[int]) -> list[int]:
        """The indices ``kept`` in a different order for each number.

        An odd number has the reversed order of the number before it, so that a judge's preference for the first or last
        place cancels in pairs.
        """
        order = list(kept)
        random.Random(f"{number // 2} {self.seed}").shuffle(order)
        return order[::-1] if number % 2 else order


@dataclass(frozen=True, slots=True)
class Ballot:
    """The indices of the compared answers, in the order in which the judge sees them."""

    places: tuple[int, ...]
    form: Form
    vote: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """A score in [0, 1] for each compared answer by its index, the ballots behind it, and the cost of all."""

    values: Mapping[int, float]
    read: tuple[tuple[Ballot, Reply], ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    spoilers: Mapping[int, str] = field(default_factory=dict)  # answers that nobody can be compared with, and why


def count(kept: Sequence[int], ballots: Sequence[Ballot], outcomes: Sequence[Reply | VerifierError]) -> Comparison:
    """The mean of each of the answers ``kept`` over its ballots.

    Two ballots of one vote with the same answers are the same question in different orders. If one of them failed, the
    other does not count, because the effect of the order would not cancel.

    Raises:
        VerifierError: no majority of an answer's ballots counts; see `worst_failure`.
    """
    cast = list(zip(ballots, outcomes, strict=True))
    lost = {_question(ballot) for ballot, outcome in cast if not isinstance(outcome, Reply)}
    read = [(ballot, each) for ballot, each in cast if isinstance(each, Reply) and _question(ballot) not in lost]
    found: dict[int, list[float]] = {place: [] for place in kept}
    for ballot, reply in read:
        for place, value in zip(ballot.places, reply.values, strict=True):
            found[place].append(value)
    asked = Counter(place for ballot in ballots for place in ballot.places)
    if any(2 * len(values) <= asked[place] for place, values in found.items()):
        raise worst_failure(outcomes)
    return Comparison({place: fmean(values) for place, values in found.items()}, tuple(read), cost(*divided(outcomes)))


def _question(ballot: Ballot) -> tuple[frozenset[int], int]:
    return frozenset(ballot.places), ballot.vote
