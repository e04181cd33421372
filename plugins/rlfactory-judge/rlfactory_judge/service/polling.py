"""Several replies where one would be chance: votes asked at once, and what stands when some of them fail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from rlfactory_core.errors import VerifierError
from rlfactory_judge.contract import (
    BudgetError,
    Question,
    RefusedError,
    Reply,
    Service,
    UnavailableError,
    UnreadableError,
)
from rlfactory_judge.service.costs import cost


@dataclass(frozen=True, slots=True)
class Poll:
    """The votes that came, in their order: always more than half of those asked for."""

    replies: tuple[Reply, ...]
    failures: tuple[VerifierError, ...] = ()  # of the others

    def medians(self) -> tuple[float, ...]:
        """The median vote at each place."""
        return medians(self.replies)


def medians(votes: Sequence[Reply]) -> tuple[float, ...]:
    """The median at each place of the replies' values."""
    return tuple(median(column) for column in zip(*(vote.values for vote in votes), strict=True))


def majority(votes: Sequence[Reply], threshold: float) -> bool:
    """Whether more than half of the replies' first values reach the threshold."""
    return 2 * sum(vote.values[0] >= threshold for vote in votes) > len(votes)


async def poll(service: Service, questions: Sequence[Question]) -> Poll:
    """Ask all at once; each question is one vote, and they are equal or the same in other words.

    Raises:
        VerifierError: as `gravest`, where no majority of the votes came.
    """
    outcomes = await ask_all(service, [(question, number) for number, question in enumerate(questions)])
    replies = tuple(outcome for outcome in outcomes if isinstance(outcome, Reply))
    failures = tuple(outcome for outcome in outcomes if not isinstance(outcome, Reply))
    if 2 * len(replies) > len(questions):
        return Poll(replies, failures)
    raise gravest(outcomes)


async def ask_all(service: Service, asked: Iterable[tuple[Question, int]]) -> list[Reply | VerifierError]:
    """The replies to questions with the numbers of their votes, asked at once; a failure stands in its reply's place.

    None is given up because another fails: it is paid for, and the next run finds it in the cache.
    """
    asking = (service.ask(question, sample=number) for question, number in asked)
    outcomes = []
    for outcome in await asyncio.gather(*asking, return_exceptions=True):
        if not isinstance(outcome, (Reply, VerifierError)):
            raise outcome
        outcomes.append(outcome)
    return outcomes


def gravest(outcomes: Sequence[Reply | VerifierError]) -> VerifierError:
    """Of the failures among some outcomes the one that decides what happens, with the counts of all outcomes.

    A spent budget goes before an outage, and that before a question that is refused or not answered readably.
    """
    replies = [outcome for outcome in outcomes if isinstance(outcome, Reply)]
    failures = [outcome for outcome in outcomes if not isinstance(outcome, Reply)]
    kinds = (BudgetError, UnavailableError, RefusedError, UnreadableError, VerifierError)
    kind, first = next((kind, one) for kind in kinds for one in failures if isinstance(one, kind))
    text = str(first) if len(outcomes) == 1 else f"{len(failures)} of {len(outcomes)} replies failed: {first}"
    return kind(text, counts=cost(replies, failures))
