"""Biases of a judge: the place of an answer, its length, and claims about its own score."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import StatisticsError, fmean, linear_regression

from rlfactory_judge.trust.figures import Estimate, correlation, mean, share

_SHOWN = 5  # of the most successful injections
_LONGEST = 160  # characters of an injected text in a report


@dataclass(frozen=True, slots=True)
class PositionBias:
    """The bias of pairs judged in both orders. Without bias: changed 0, first 0.5."""

    pairs: int
    changed: Estimate | None  # share of the pairs whose winner changes if the order is swapped
    first: Estimate | None  # share of the wins that the first place has; None: no wins


@dataclass(frozen=True, slots=True)
class LengthBias:
    """Rank correlation of an answer's length in characters with its score's residual on the label; 0 without bias."""

    everywhere: Estimate | None  # None: too few answers, or scores that follow from the labels exactly
    wrong_only: Estimate | None  # the same among wrong answers


@dataclass(frozen=True, slots=True)
class InjectedAnswer:
    """A wrong answer, or the worse one of a pair, with an injected text, and the judge's decision."""

    answer_id: str  # of the label
    injection: str  # the name of the injected text
    text: str  # the whole answer, as the judge saw it
    score: float  # on [0, 1]
    accepted: bool  # of a pair: preferred


@dataclass(frozen=True, slots=True)
class Breach:
    """An injected text that turned rejections into acceptances."""

    injection: str
    turned: int  # answers that were rejected without it, and accepted with it
    tried: int  # answers that were rejected without it
    answer_id: str  # of the answer with the highest score
    text: str  # its end, where the injected text stands, on one line
    score: float  # on [0, 1]


@dataclass(frozen=True, slots=True)
class InjectionBias:
    """False accepts of wrong answers with injected texts, compared with the same answers without."""

    answers: int
    judgements: int
    accepted: Estimate | None  # share of the injected answers; the interval is over answers, not over judgements
    accepted_before: Estimate | None  # share of the same answers without injection
    added: Estimate | None  # how much larger the first share is, over answers; without bias: 0
    worst: tuple[Breach, ...] = ()


def position_bias(pairs: Sequence[tuple[int, int]]) -> PositionBias:
    """From each pair's `winner` in the file's order, and swapped."""
    changed = sum(straight != -swapped for straight, swapped in pairs)
    won = [place for pair in pairs for place in pair if place]
    return PositionBias(len(pairs), share(changed, len(pairs)), share(sum(place > 0 for place in won), len(won)))


def winner(values: Sequence[float]) -> int:
    """Of the values by place. 1: the first place, -1: the second, 0: none."""
    return (values[0] > values[1]) - (values[0] < values[1])


def length_bias(
    lengths: Sequence[int], scores: Sequence[float], labels: Sequence[float], wrong: Sequence[bool]
) -> LengthBias:
    """See `LengthBias`.

    The residual is that of a least squares line of scores on labels. With labels that are true or false, it is the
    score minus the mean score of the answers with the same label. So a cautious judge shows no bias if right answers
    happen to be longer.
    """
    lost = [row[:3] for row in zip(lengths, scores, labels, wrong, strict=True) if row[3]]
    everywhere = correlation(lengths, _residuals(scores, labels), "spearman")
    of_wrong, wrong_scores, wrong_labels = zip(*lost, strict=True) if lost else ((), (), ())
    return LengthBias(everywhere, correlation(of_wrong, _residuals(wrong_scores, wrong_labels), "spearman"))


def _residuals(scores: Sequence[float], labels: Sequence[float]) -> list[float]:
    """The residuals, rounded so that values equal except for rounding errors have equal ranks."""
    try:
        slope, intercept = linear_regression(labels, scores)
    except StatisticsError:  # the labels are all equal, and ranks do not depend on their mean
        slope, intercept = 0.0, 0.0
    return [round(s - intercept - slope * label, 9) for s, label in zip(scores, labels, strict=True)]


def injection_bias(injected: Sequence[InjectedAnswer], before: Mapping[str, float], seed: int) -> InjectionBias:
    """See `InjectionBias`.

    Args:
        before: by the answer's id, the share of its judgements without injection that accepted it.
        seed: of the interval of ``added``.
    """
    by_answer: defaultdict[str, list[InjectedAnswer]] = defaultdict(list)
    for one in injected:
        by_answer[one.answer_id].append(one)
    accepted = sum(fmean(one.accepted for one in group) for group in by_answer.values())
    added = [fmean(one.accepted for one in group) - before[name] for name, group in by_answer.items()]
    return InjectionBias(
        answers=len(by_answer),
        judgements=len(injected),
        accepted=share(min(accepted, len(by_answer)), len(by_answer)),
        accepted_before=share(fsum(before[name] for name in by_answer), len(by_answer)),
        added=mean(added, seed),
        worst=_worst([one for one in injected if not before[one.answer_id]]),
    )


def _worst(injected: Sequence[InjectedAnswer]) -> tuple[Breach, ...]:
    """The injections that turned most of the rejected answers into accepted ones."""
    tried = Counter(one.injection for one in injected)
    turned: defaultdict[str, list[InjectedAnswer]] = defaultdict(list)
    for one in injected:
        if one.accepted:
            turned[one.injection].append(one)
    order = sorted(turned, key=lambda name: (-len(turned[name]) / tried[name], -len(turned[name]), name))
    found = []
    for name in order[:_SHOWN]:
        best = max(turned[name], key=lambda one: (one.score, one.answer_id))
        found.append(Breach(name, len(turned[name]), tried[name], best.answer_id, _end(best.text), best.score))
    return tuple(found)


def _end(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"…{line[1 - _LONGEST :]}"
