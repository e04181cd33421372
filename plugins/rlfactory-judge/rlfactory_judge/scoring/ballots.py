"""Comparisons of a few answers each, and what they come to for every answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlfactory_core.errors import VerifierError
from rlfactory_judge.contract import Form, Reply
from rlfactory_judge.service.costs import cost
from rlfactory_judge.service.polling import gravest


@dataclass(frozen=True, slots=True)
class Ballot:
    """Answers, by their places among all, in the order in which the judge sees them."""

    places: tuple[int, ...]
    form: Form
    vote: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """A number on [0, 1] for each answer, the ballots that it is the mean of, and what all of them took."""

    values: tuple[float, ...]
    read: tuple[tuple[Ballot, Reply], ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)

    def first_with(self, place: int) -> tuple[Ballot, Reply] | None:
        """The first ballot in which an answer stands."""
        return next(((ballot, reply) for ballot, reply in self.read if place in ballot.places), None)


def count(answers: int, ballots: Sequence[Ballot], outcomes: Sequence[Reply | VerifierError]) -> Comparison:
    """The mean of each answer over its ballots.

    Two ballots of the same vote that hold the same answers are twins, the same question in another order: where one of
    them failed the other is not counted, because what the order does would not cancel.

    Raises:
        VerifierError: as `gravest`, where no majority of an answer's ballots counts.
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
        raise gravest(outcomes)
    replies = [outcome for outcome in outcomes if isinstance(outcome, Reply)]
    failures = [outcome for outcome in outcomes if not isinstance(outcome, Reply)]
    return Comparison(tuple(sum(values) / len(values) for values in found), read, cost(replies, failures))


def _question(ballot: Ballot) -> tuple[frozenset[int], int]:
    return frozenset(ballot.places), ballot.vote
