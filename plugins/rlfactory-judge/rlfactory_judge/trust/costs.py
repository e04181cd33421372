"""What a measurement cost: tokens, seconds, and the judgements that did not come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from rlfactory_judge.trust.judging import Judged


@dataclass(frozen=True, slots=True)
class Costs:
    """What judging cost, all questions of the measurement together."""

    judgements: int
    unreadable: int  # judgements whose replies had not the form that was asked for
    unavailable: int  # judgements that no endpoint gave
    cached: int  # judgements that were at hand from an equal question
    tokens: int  # prompts and replies
    tokens_p50: float | None  # of one judgement that was not at hand; None where all were
    tokens_p95: float | None
    seconds_p50: float | None  # from question to reply, of one judgement that was not at hand
    seconds_p95: float | None


def costs_of(judged: Sequence[Judged]) -> Costs:
    """Of all judgements of a measurement."""
    fresh = [one for one in judged if one.replies and not one.cached]
    tokens, seconds = [float(one.tokens) for one in fresh], [one.seconds for one in fresh]
    return Costs(
        judgements=len(judged),
        unreadable=sum(one.failure == "unreadable" for one in judged),
        unavailable=sum(one.failure == "unavailable" for one in judged),
        cached=sum(bool(one.replies) and one.cached for one in judged),
        tokens=sum(one.tokens for one in judged),
        tokens_p50=_quantile(tokens, 0.5),
        tokens_p95=_quantile(tokens, 0.95),
        seconds_p50=_quantile(seconds, 0.5),
        seconds_p95=_quantile(seconds, 0.95),
    )


def _quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of the values do not exceed (nearest rank)."""
    return sorted(values)[max(0, ceil(share * len(values)) - 1)] if values else None
