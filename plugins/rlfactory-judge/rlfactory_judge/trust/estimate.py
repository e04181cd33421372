"""A measured figure with its 95 % confidence interval: of a share, a mean, or a correlation."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import atanh, fsum, sqrt, tanh
from statistics import StatisticsError, correlation

Z95 = 1.959963984540054  # the normal distribution's 97.5 % quantile
RESAMPLES = 1000  # of a bootstrap
_FEWEST = 4  # values of a correlation: the interval's width needs n - 3 > 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure. ``low`` and ``high`` bound it with 95 % confidence."""

    value: float
    low: float
    high: float
    n: int  # what it was measured on


def share(count: float, size: int) -> Estimate | None:
    """``count / size`` with Wilson's score interval; None for ``size`` 0.

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927): ``(p + z^2 / 2n
    ± z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)``. It is also right near 0 and 1, where the normal
    approximation fails.

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
    """The mean with a percentile bootstrap interval (B. Efron, Annals of Statistics 7, 1979); None without values.

    If all values are equal, a bootstrap gives a single point. Then Wilson's upper bound for 0 of ``size`` gives the
    share of cases that may differ, each by at most 1.
    """
    others = share(0, len(values))
    if others is None:
        return None
    if min(values) == max(values):
        return Estimate(values[0], values[0] - others.high, values[0] + others.high, len(values))
    rng = random.Random(seed)
    size = len(values)
    means = sorted(fsum(rng.choices(values, k=size)) / size for _ in range(RESAMPLES))
    return Estimate(fsum(values) / size, *middle(means), size)


def middle(resampled: Sequence[float]) -> tuple[float, float]:
    """The bounds of the middle 95 % of sorted values."""
    return resampled[round(0.025 * len(resampled))], resampled[round(0.975 * len(resampled)) - 1]


def pearson(x: Sequence[float], y: Sequence[float]) -> float | None:
    """The product-moment correlation, K. Pearson (1895); None where either series is constant or shorter than two."""
    if len(x) != len(y):
        raise ValueError(f"two series of one length are needed, got {len(x)} and {len(y)} values")
    try:
        return max(-1.0, min(1.0, correlation(x, y)))
    except StatisticsError:
        return None


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share their mean rank."""
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value) + 1) / 2 for value in values]


def spearman(x: Sequence[float], y: Sequence[float]) -> float | None:
    """The rank correlation, C. Spearman (1904): Pearson's of the ranks, ties averaged. None as in `pearson`."""
    return pearson(ranks(x), ranks(y))


def pearson_estimate(x: Sequence[float], y: Sequence[float]) -> Estimate | None:
    """With a 95 % interval by R. A. Fisher's transformation (1921): ``tanh(atanh(r) ± 1.96 / sqrt(n - 3))``."""
    return _with_interval(pearson(x, y), len(x), spread=1.0)


def spearman_estimate(x: Sequence[float], y: Sequence[float]) -> Estimate | None:
    """With a 95 % interval by the same transformation, whose variance is ``(1 + r^2 / 2) / (n - 3)``.

    D. G. Bonett and T. A. Wright, Sample size requirements for estimating Pearson, Kendall and Spearman correlations,
    Psychometrika 65 (2000).
    """
    found = spearman(x, y)
    return _with_interval(found, len(x), spread=1.0 if found is None else 1.0 + found * found / 2)


def _with_interval(value: float | None, size: int, spread: float) -> Estimate | None:
    if value is None:
        return None
    if size < _FEWEST:
        return Estimate(value, -1.0, 1.0, size)
    if abs(value) == 1.0:
        return Estimate(value, value, value, size)
    half = Z95 * sqrt(spread / (size - 3))
    return Estimate(value, tanh(atanh(value) - half), tanh(atanh(value) + half), size)
