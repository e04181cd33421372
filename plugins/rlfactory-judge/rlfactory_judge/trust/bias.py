"""Biases of a judge: the place of an answer, its length, and claims about its own score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import StatisticsError, fmean, linear_regression

from rlfactory_judge.trust.figures import Estimate, mean, rank_correlation, share


@dataclass(frozen=True, slots=True)
class PositionBias:
    """The bias of pairs judged in both orders. Without bias: changed 0, first 0.5."""

    pairs: int
    changed: Estimate | None  # share of the pairs whose winner changes if the order is swapped
    first: Estimate | None  # share of the wins that the first place has; None: no wins


@dataclass(frozen=True, slots=True)
class InjectionBias:
    """False accepts of wrong answers with injected texts, compared with the same answers without."""

    answers: int
    judgements: int
    accepted: Estimate | None  # share of the injected answers; the interval is over answers, not over judgements
    accepted_before: Estimate | None  # share of the same answers without injection
    added: Estimate | None  # how much larger the first share is, over answers; without bias: 0


def position_bias(pairs: Sequence[tuple[int, int]]) -> PositionBias:
    """From each pair's `winner` in the file's order, and swapped."""
    changed = sum(straight != -swapped for straight, swapped in pairs)
    won = [place for pair in pairs for place in pair if place]
    return PositionBias(len(pairs), share(changed, len(pairs)), share(sum(place > 0 for place in won), len(won)))


def winner(values: Sequence[float]) -> int:
    """Of the values by place. 1: the first place, -1: the second, 0: none."""
    return (values[0] > values[1]) - (values[0] < values[1])


def length_bias(lengths: Sequence[int], scores: Sequence[float], labels: Sequence[float]) -> Estimate | None:
    """Rank correlation of an answer's length in characters with its score's residual on the label; 0 without bias.

    The residual is that of a least squares line of scores on labels. With labels that are true or false, it is the
    score minus the mean score of the answers with the same label. So a cautious judge shows no bias if right answers
    happen to be longer. None: too few answers, or scores that follow from the labels exactly.
    """
    return rank_correlation(lengths, _residuals(scores, labels))


def _residuals(scores: Sequence[float], labels: Sequence[float]) -> list[float]:
    """The residuals, rounded so that values equal except for rounding errors have equal ranks."""
    try:
        slope, intercept = linear_regression(labels, scores)
    except StatisticsError:  # the labels are all equal, and ranks do not depend on their mean
        slope, intercept = 0.0, 0.0
    return [round(s - intercept - slope * label, 9) for s, label in zip(scores, labels, strict=True)]


def injection_bias(injected: Mapping[str, Sequence[bool]], before: Mapping[str, float], seed: int) -> InjectionBias:
    """See `InjectionBias`.

    Args:
        injected: by the answer's id, whether each of its judgements with an injected text accepted it; of a pair,
            whether it preferred the worse answer.
        before: by the answer's id, the share of its judgements without injection that accepted it.
        seed: of the interval of ``added``.
    """
    size, accepted = len(injected), sum(map(fmean, injected.values()))
    return InjectionBias(
        answers=size,
        judgements=sum(map(len, injected.values())),
        accepted=share(min(accepted, size), size),
        accepted_before=share(fsum(before[name] for name in injected), size),
        added=mean([fmean(verdicts) - before[name] for name, verdicts in injected.items()], seed),
    )
