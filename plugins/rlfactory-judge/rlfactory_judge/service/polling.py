"""Several votes instead of one reply: asked concurrently, with a majority rule for failures, and their cost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from rlfactory_core.errors import VerifierError
from rlfactory_judge.contract import (
    BudgetError,
    Question,
    RefusedError,
    RejectedError,
    Reply,
    UnavailableError,
    UnreadableError,
)
from rlfactory_judge.service.service import JudgeService

_NAMES: dict[type[VerifierError], str] = {  # of the counts, the most serious failure first
    BudgetError: "over_budget",
    UnavailableError: "unavailable",
    RefusedError: "refused",
    UnreadableError: "unreadable",
    VerifierError: "failed",
}


@dataclass(frozen=True, slots=True)
class Poll:
    """The successful votes in order; always more than half of those requested."""

    replies: tuple[Reply, ...]
    failures: tuple[VerifierError, ...] = ()  # of the other votes


def medians(votes: Sequence[Reply]) -> tuple[float, ...]:
    """The median at each place of the replies' values."""
    return tuple(median(column) for column in zip(*(vote.values for vote in votes), strict=True))


def majority(votes: Sequence[Reply], threshold: float) -> bool:
    """Whether more than half of the replies' first values reach the threshold."""
    return 2 * sum(vote.values[0] >= threshold for vote in votes) > len(votes)


async def poll(service: JudgeService, question: Question, votes: int, *, first: int = 0) -> Poll:
    """Ask a question several times, concurrently. The votes are numbered from ``first``.

    Raises:
        VerifierError: no majority of the votes succeeded; see `worst_failure`.
    """
    outcomes = await ask_all(service, [(question, first + number) for number in range(votes)])
    replies, failures = divided(outcomes)
    if 2 * len(replies) > votes:
        return Poll(replies, failures)
    raise worst_failure(outcomes)


async def ask_all(service: JudgeService, asked: Iterable[tuple[Question, int]]) -> list[Reply | VerifierError]:
    """The replies to questions with their vote numbers, asked concurrently; failures take the place of replies.

    A failure does not cancel the others: their tokens are spent, and the next run finds their replies in the cache.
    """
    requests = (service.ask(question, sample=number) for question, number in asked)
    outcomes = []
    for outcome in await asyncio.gather(*requests, return_exceptions=True):
        if not isinstance(outcome, (Reply, VerifierError)):
            raise outcome
        outcomes.append(outcome)
    return outcomes


def divided(outcomes: Iterable[Reply | VerifierError]) -> tuple[tuple[Reply, ...], tuple[VerifierError, ...]]:
    """The replies and the failures among some outcomes."""
    both = list(outcomes)
    replies = tuple(each for each in both if isinstance(each, Reply))
    return replies, tuple(each for each in both if not isinstance(each, Reply))


def worst_failure(outcomes: Sequence[Reply | VerifierError]) -> VerifierError:
    """The most serious failure among some outcomes, with the counts of all outcomes.

    A spent budget is more serious than an outage, and an outage more than a refused question or an unreadable answer.
    """
    replies, failures = divided(outcomes)
    kind, first = next((kind, one) for kind in _NAMES for one in failures if isinstance(one, kind))
    if kind is RefusedError and all(isinstance(one, RejectedError) for one in failures if isinstance(one, kind)):
        kind = RejectedError
    text = str(first) if len(outcomes) == 1 else f"{len(failures)} of {len(outcomes)} replies failed: {first}"
    return kind(text, counts=cost(replies, failures))


def cost(replies: Iterable[Reply], failures: Iterable[VerifierError] = ()) -> dict[str, float]:
    """The total cost of replies and failures, for `Score.counts`.

    ``replies``, of these ``cached`` ones (from an equal question); ``requests``, of these ``retries`` and
    ``hedged`` ones; ``prompt_tokens``, ``sampled_tokens``; questions that failed as ``unreadable``, ``refused``,
    ``unavailable`` or ``over_budget``. Zero counts are left out. A failure's own ``counts`` are added.
    """
    counts: Counter[str] = Counter()
    for reply in replies:
        counts["replies"] += 1
        counts["cached"] += reply.cached
        counts["requests"] += reply.attempts
        counts["retries"] += max(0, reply.attempts - 1 - reply.hedged)
        counts["hedged"] += reply.hedged
        counts["prompt_tokens"] += reply.prompt_tokens
        counts["sampled_tokens"] += reply.sampled_tokens
    for failure in failures:
        counts[next(name for kind, name in _NAMES.items() if isinstance(failure, kind))] += 1
        for name, count in failure.counts.items():
            counts[name] += count  # type: ignore[assignment]
    return {name: float(count) for name, count in counts.items() if count}
