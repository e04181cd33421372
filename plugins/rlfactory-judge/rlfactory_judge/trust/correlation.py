"""Correlations of two series, with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from math import atanh, fsum, sqrt, tanh

from rlfactory_judge.trust.estimate import Z95, Estimate

_FEWEST = 4  # values: the interval's width needs n - 3 > 0


def pearson(x: Sequence[float], y: Sequence[float]) -> float | None:
    """The product-moment correlation, K. Pearson (1895); None where either series is constant or shorter than two.

    ``sum((x - mx)(y - my)) / sqrt(sum((x - mx)^2) sum((y - my)^2))``
    """
    size = len(x)
    if size != len(y):
        raise ValueError(f"two series of one length are needed, got {size} and {len(y)} values")
    if size < 2 or min(x) == max(x) or min(y) == max(y):
        return None
    mean_x, mean_y = fsum(x) / size, fsum(y) / size
    off_x, off_y = [value - mean_x for value in x], [value - mean_y for value in y]
    spread = sqrt(fsum(value * value for value in off_x)) * sqrt(fsum(value * value for value in off_y))
    if spread == 0.0:  # differences below what a float holds
        return None
    return max(-1.0, min(1.0, fsum(a * b for a, b in zip(off_x, off_y, strict=True)) / spread))


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share their mean rank."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in range(start, end + 1):
            found[order[place]] = (start + end) / 2 + 1
        start = end + 1
    return found


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
    middle = atanh(value)
    return Estimate(value, tanh(middle - half), tanh(middle + half), size)
