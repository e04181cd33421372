"""Several votes instead of one reply: asked concurrently, with a majority rule for failures, and their cost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
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


def medians(votes: Sequence[Reply]) -> tuple[float, ...]:
    """The median at each place of the replies' values."""
    return tuple(median(column) for column in zip(*(vote.values for vote in votes), strict=True))


def majority(votes: Sequence[Reply], threshold: float) -> bool:
    """Whether more than half of the replies' first values reach the threshold."""
    return 2 * sum(vote.values[0] >= threshold for vote in votes) > len(votes)


async def poll(
    service: JudgeService, question: Question, votes: int, *, first: int = 0
) -> tuple[list[Reply], dict[str, float]]:
    """The successful votes on a question, always more than half, and the cost of all (see `cost`).

    Raises:
        VerifierError: no majority of the votes succeeded; see `worst_failure`.
    """
    outcomes = await ask_all(service, [(question, first + number) for number in range(votes)])
    replies = [each for each in outcomes if isinstance(each, Reply)]
    if 2 * len(replies) > votes:
        return replies, cost(outcomes)
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


def worst_failure(outcomes: Sequence[Reply | VerifierError]) -> VerifierError:
    """The most serious failure among some outcomes, in the order of `_NAMES`, with the counts of all outcomes."""
    failures = [each for each in outcomes if not isinstance(each, Reply)]
    kind, first = next((kind, one) for kind in _NAMES for one in failures if isinstance(one, kind))
    if kind is RefusedError and all(isinstance(one, RejectedError) for one in failures if isinstance(one, kind)):
        kind = RejectedError
    text = str(first) if len(outcomes) == 1 else f"{len(failures)} of {len(outcomes)} replies failed: {first}"
    return kind(text, counts=cost(outcomes))


def cost(outcomes: Iterable[Reply | VerifierError]) -> dict[str, float]:
    """The total cost of replies and failures for `Score.counts`; counts of zero are left out.

    ``replies``, of these ``cached`` ones (from an equal question); ``requests``, of these ``retries`` and
    ``hedged`` ones; ``prompt_tokens``, ``sampled_tokens``; and the failures by the names in `_NAMES`.
    """
    counts: Counter[str] = Counter()
    for each in outcomes:
        if isinstance(each, Reply):
            retries = max(0, each.attempts - 1 - each.hedged)
            counts.update(replies=1, cached=each.cached, requests=each.attempts, retries=retries, hedged=each.hedged)
            counts.update(prompt_tokens=each.prompt_tokens, sampled_tokens=each.sampled_tokens)
        else:
            counts[next(name for kind, name in _NAMES.items() if isinstance(each, kind))] += 1
            counts.update(each.counts)
    return {name: float(count) for name, count in counts.items() if count}
