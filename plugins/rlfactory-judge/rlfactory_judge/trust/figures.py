"""Figures with their 95 % confidence intervals: shares, means, correlations, and agreement beyond chance."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import StatisticsError, linear_regression
from typing import Any

import numpy as np

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

    ``count`` need not be whole: each of ``size`` independent cases may count as a number between 0 and 1.
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


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> Estimate | None:
    """Spearman's correlation with R. A. Fisher's interval; None where a series is constant or shorter than two."""
    from scipy import stats  # takes a second to import, and the report's figures need none

    if min(len(set(x)), len(set(y))) < 2:
        return None
    found = stats.pearsonr(stats.rankdata(x), stats.rankdata(y))
    low, high = found.confidence_interval(0.95) if len(x) >= _FEWEST else (-1.0, 1.0)
    return Estimate(float(found.statistic), float(low), float(high), len(x))


def length_bias(lengths: Sequence[int], scores: Sequence[float], labels: Sequence[float]) -> Estimate | None:
    """Rank correlation of an answer's length in characters with its score's residual on the label; 0 without bias.

    The residual is that of a least squares line of scores on labels, so that a cautious judge shows no bias if right
    answers happen to be longer. None: too few answers, or scores that follow from the labels exactly.
    """
    try:
        slope, intercept = linear_regression(labels, scores)
    except StatisticsError:  # the labels are all equal, and ranks do not depend on their mean
        slope, intercept = 0.0, 0.0
    # Rounded, so that values that are equal except for rounding errors have equal ranks.
    residuals = [round(s - intercept - slope * label, 9) for s, label in zip(scores, labels, strict=True)]
    return rank_correlation(lengths, residuals)


def _bootstrap(cases: Sequence[Any], figure: Callable[..., Any], seed: int) -> tuple[float, float]:
    """A percentile interval (B. Efron, Annals of Statistics 7, 1979), without resamples that have no such figure."""
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
    """The agreement of verdicts with labels."""

    n: int  # independent cases that were judged: answers, or pairs
    accuracy: Estimate | None  # share of equal verdicts; None where nothing was judged
    kappa: Estimate | None  # Cohen's; None where it is undefined or says nothing
    why_no_kappa: str = ""
    confusion: Confusion | None = None  # None for pairs


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


def weighted_kappa(labels: Sequence[float], scores: Sequence[float], seed: int) -> Estimate | None:
    """Cohen's kappa of labels and scores on [0, 1], weighted by squared distances; None if the labels are all equal."""
    points = np.array([labels, scores], float).T[:, None, :, None]
    return _kappa_estimate(points, seed) if len(set(labels)) > 1 else None


def points_of(pairs: Sequence[Sequence[Observation]]) -> Any:
    """Verdicts as the points of `kappa`, each at a distance of 1 from all others; all cases are of one length."""
    names = list({name: None for pair in pairs for observation in pair for name in observation})
    corners = np.eye(len(names)) * sqrt(0.5)
    return corners[[[[names.index(name) for name in observation] for observation in pair] for pair in pairs]]


def _kappa_estimate(points: Any, seed: int) -> Estimate:
    """Kappa with its interval. Without any disagreement all resamples would be equal: then Wilson's bound is used."""
    size, value = len(points), float(kappa(points))
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
    observed = np.mean(np.sum((points[..., 0, :] - points[..., 1, :]) ** 2, -1), (-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.round(1 - observed / _by_chance(points), 12) + 0.0  # no rounding error shows, and no -0


def _by_chance(points: Any) -> Any:
    spread = np.var(points, (-4, -3)).sum((-2, -1))
    return spread + np.sum((points[..., 0, :] - points[..., 1, :]).mean((-3, -2)) ** 2, -1)
