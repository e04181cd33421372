"""Figures with their 95 % confidence intervals: shares, correlations, agreement beyond chance, and biases."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, sqrt
from statistics import StatisticsError, fmean, linear_regression
from typing import Any

Z95 = 1.959963984540054  # the normal distribution's 97.5 % quantile
RESAMPLES = 1000  # of a bootstrap
_BATCH = 100  # of them at a time, which bounds the memory
_FEWEST = 4  # values of a correlation: the interval's width needs n - 3 > 0
_FEWEST_DEFINED = 0.5  # share of the resamples in which a figure has to be defined for an interval

Observation = tuple[Hashable, Hashable]  # people's verdict, the judge's verdict


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure. ``low`` and ``high`` bound it with 95 % confidence."""

    value: float
    low: float
    high: float
    n: int  # what it was measured on


def share(count: float, size: int) -> Estimate | None:
    """``count / size`` with Wilson's score interval (JASA 22, 1927), right near 0 and 1 too; None for ``size`` 0.

    Args:
        count: need not be whole: each of ``size`` independent cases may count as a number between 0 and 1.
    """
    if not 0 <= count <= size:
        raise ValueError(f"a count from 0 to {size} is needed, got {count}")
    if size == 0:
        return None
    found, squared = count / size, Z95 * Z95
    centre = (found + squared / (2 * size)) / (1 + squared / size)
    half = Z95 * sqrt(found * (1 - found) / size + squared / (4 * size * size)) / (1 + squared / size)
    low = 0.0 if count == 0 else max(0.0, centre - half)
    high = 1.0 if count == size else min(1.0, centre + half)
    return Estimate(found, low, high, size)


def mean(values: Sequence[float], seed: int) -> Estimate | None:
    """The mean with a bootstrap interval; None without values.

    If all values are equal, a bootstrap gives a single point. Then Wilson's upper bound for 0 of ``size`` gives the
    share of cases that may differ, each by at most 1.
    """
    import numpy as np

    others = share(0, len(values))
    if others is None:
        return None
    if min(values) == max(values):
        return Estimate(values[0], values[0] - others.high, values[0] + others.high, len(values))
    return Estimate(float(np.mean(values)), *_bootstrap(values, np.mean, seed), len(values))


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> Estimate | None:
    """Spearman's correlation with R. A. Fisher's interval; None where a series is constant or shorter than two."""
    from scipy import stats

    if min(len(set(x)), len(set(y))) < 2:
        return None
    found = stats.pearsonr(stats.rankdata(x), stats.rankdata(y))
    low, high = found.confidence_interval(0.95) if len(x) >= _FEWEST else (-1.0, 1.0)
    return Estimate(float(found.statistic), float(low), float(high), len(x))


def weighted_kappa(labels: Sequence[float], scores: Sequence[float], seed: int) -> Estimate | None:
    """Cohen's kappa of graded labels, weighted by squared distances (see `kappa`); None if the labels are all equal.

    Args:
        labels, scores: on [0, 1].
    """
    import numpy as np

    points = np.array([labels, scores], float).T[:, None, :, None]
    return _kappa_estimate(points, seed) if len(set(labels)) > 1 else None


def _bootstrap(cases: Sequence[Any], figure: Callable[..., Any], seed: int) -> tuple[float, float]:
    """A percentile interval (B. Efron, Annals of Statistics 7, 1979), without resamples that have no such figure."""
    import numpy as np
    from scipy import stats

    rows = np.asarray(cases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)  # all resamples equal is an answer here
        found = stats.bootstrap(
            (np.arange(len(rows)),), lambda drawn, axis: figure(rows[drawn], axis), n_resamples=RESAMPLES,
            batch=_BATCH, vectorized=True, method="percentile", rng=np.random.default_rng(seed),
        ).bootstrap_distribution  # fmt: skip
    defined = found[np.isfinite(found)]
    if len(defined) < _FEWEST_DEFINED * RESAMPLES:
        return (-1.0, 1.0)
    low, high = np.percentile(defined, [2.5, 97.5])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of answers by people's and the judge's verdicts."""

    right_accepted: int
    right_rejected: int
    wrong_accepted: int
    wrong_rejected: int

    @property
    def false_accepts(self) -> Estimate | None:
        """Share of the wrong answers that the judge accepts; None without wrong ones."""
        return share(self.wrong_accepted, self.wrong_accepted + self.wrong_rejected)

    @property
    def false_rejects(self) -> Estimate | None:
        """Share of the right answers that the judge rejects; None without right ones."""
        return share(self.right_rejected, self.right_accepted + self.right_rejected)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of verdicts with labels.

    Args:
        n: independent cases that were judged: answers, or pairs.
        accuracy: share of equal verdicts; None where nothing was judged.
        kappa: Cohen's; None where it is undefined or says nothing, and ``why_no_kappa`` says why.
        confusion: None for pairs.
    """

    n: int
    accuracy: Estimate | None
    kappa: Estimate | None
    why_no_kappa: str = ""
    confusion: Confusion | None = None


def agreement_of_answers(observations: Sequence[tuple[bool, bool]], seed: int = 0) -> Agreement:
    """The agreement for pairs of (label, accepted), one for each answer."""
    counts = Counter(observations)
    confusion = Confusion(counts[True, True], counts[True, False], counts[False, True], counts[False, False])
    return replace(agreement_of_pairs([[each] for each in observations], seed), confusion=confusion)


def agreement_of_pairs(pairs: Sequence[Sequence[Observation]], seed: int = 0) -> Agreement:
    """The agreement on the better place, in both orders: ``pairs[i]`` holds the observations of one pair.

    Places, not answers, are the categories: so the order in the file does not matter, and a judge that always names the
    first place has a kappa of 0.
    """
    agreed = sum(sum(a == b for a, b in pair) / len(pair) for pair in pairs)
    accuracy = share(min(agreed, len(pairs)), len(pairs))
    if accuracy is None:
        return Agreement(0, None, None, "nothing was judged")
    if len({a for pair in pairs for a, _ in pair}) == 1:
        return Agreement(len(pairs), accuracy, None, "all labels are the same")
    return Agreement(len(pairs), accuracy, _kappa_estimate(points_of(pairs), seed))


def points_of(pairs: Sequence[Sequence[Observation]]) -> Any:
    """Verdicts as the points of `kappa`, each at a distance of 1 from all others; all cases are of one length."""
    import numpy as np

    names = list({name: None for pair in pairs for observation in pair for name in observation})
    corners = np.eye(len(names)) * sqrt(0.5)
    return corners[[[[names.index(name) for name in observation] for observation in pair] for pair in pairs]]


def _kappa_estimate(points: Any, seed: int) -> Estimate:
    """Kappa with its interval. Without any disagreement all resamples would be equal: then Wilson's bound is used."""
    size = len(points)
    value = float(kappa(points))
    perfect = share(size, size)
    if value == 1.0 and perfect is not None:
        return Estimate(value, 1 - (1 - perfect.low) / float(_by_chance(points)), 1.0, size)
    return Estimate(value, *_bootstrap(points, lambda drawn, axis: kappa(drawn), seed), size)


def kappa(points: Any) -> Any:
    """Agreement beyond chance: 1 is always equal, 0 as by chance; not a number if undefined.

    ``1 - d_o / d_e``: the mean squared distance of people's and the judge's verdict, and that of verdicts that are
    independent, with these frequencies. Of graded verdicts that is J. Cohen's weighted kappa (Psychological Bulletin
    70, 1968); of categories at equal distances his kappa (Educational and Psychological Measurement 20, 1960).

    Args:
        points: ..., cases, observations of each, people and judge, coordinates.
    """
    import numpy as np

    observed = np.mean(np.sum((points[..., 0, :] - points[..., 1, :]) ** 2, -1), (-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.round(1 - observed / _by_chance(points), 12) + 0.0  # no rounding error shows, and no -0


def _by_chance(points: Any) -> Any:
    import numpy as np

    spread = np.var(points, (-4, -3)).sum((-2, -1))
    return spread + np.sum((points[..., 0, :] - points[..., 1, :]).mean((-3, -2)) ** 2, -1)


@dataclass(frozen=True, slots=True)
class SelfConsistency:
    """The consistency of several replies to each question, sampled at a temperature above 0.

    ``agreeing`` is always at least one half. For random verdicts it is 0.75 with three samples.
    """

    answers: int  # with at least two readable replies
    samples: int  # that were asked for, of each
    temperature: float
    agreeing: Estimate | None  # mean share of the replies that say what most of them say


def self_consistency(verdicts: Sequence[Sequence[bool]], *, samples: int, temperature: float) -> SelfConsistency:
    """The consistency for the verdicts of each answer's readable replies."""
    several = [replies for replies in verdicts if len(replies) >= 2]
    agreeing = sum(max(sum(replies), len(replies) - sum(replies)) / len(replies) for replies in several)
    return SelfConsistency(len(several), samples, temperature, share(min(agreeing, len(several)), len(several)))


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
