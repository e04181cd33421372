"""The answers of a group that are compared, ballots about a few of them, and the resulting scores."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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

    def shuffled(self, number: int) -> list[int]:
        """The indices in a different order for each number.

        An odd number has the reversed order of the number before it, so that a judge's preference for the first or last
        place cancels in pairs.
        """
        order = list(range(len(self.answers)))
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
    """A score in [0, 1] for each answer, the ballots behind it, and the cost of all."""

    values: tuple[float, ...]
    read: tuple[tuple[Ballot, Reply], ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    spoilers: Mapping[int, str] = field(default_factory=dict)  # answers that nobody can be compared with, and why

    def among(self, places: Sequence[int], spoilers: Mapping[int, str]) -> Comparison:
        """This comparison of the answers ``places`` as one of all, in which the spoilers score 0."""
        values = dict(zip(places, self.values, strict=True)) | dict.fromkeys(spoilers, 0.0)
        read = tuple((replace(one, places=tuple(places[at] for at in one.places)), reply) for one, reply in self.read)
        known = {places[at]: why for at, why in self.spoilers.items()} | dict(spoilers)
        return Comparison(tuple(values[place] for place in sorted(values)), read, self.counts, known)

    def first_with(self, place: int) -> tuple[Ballot, Reply] | None:
        """The first ballot with a given answer."""
        return next(((ballot, reply) for ballot, reply in self.read if place in ballot.places), None)


def count(answers: int, ballots: Sequence[Ballot], outcomes: Sequence[Reply | VerifierError]) -> Comparison:
    """The mean of each answer over its ballots.

    Two ballots of one vote with the same answers are the same question in different orders. If one of them failed, the
    other does not count, because the effect of the order would not cancel.

    Raises:
        VerifierError: no majority of an answer's ballots counts; see `worst_failure`.
    """
    lost = {_question(ballot) for ballot, each in zip(ballots, outcomes, strict=True) if not isinstance(each, Reply)}
    read = tuple(
        (ballot, outcome)
        for ballot, outcome in zip(ballots, outcomes, strict=True)
        if isinstance(outcome, Reply) and _question(ballot) not in lost
    )
    found: list[list[float]] = [[] for _ in range(answers)]
    for ballot, reply in read:
        for place, value in zip(ballot.places, reply.values, strict=True):
            found[place].append(value)
    asked = [sum(place in ballot.places for ballot in ballots) for place in range(answers)]
    if any(2 * len(values) <= number for values, number in zip(found, asked, strict=True)):
        raise worst_failure(outcomes)
    return Comparison(tuple(sum(values) / len(values) for values in found), read, cost(*divided(outcomes)))


def _question(ballot: Ballot) -> tuple[frozenset[int], int]:
    return frozenset(ballot.places), ballot.vote
