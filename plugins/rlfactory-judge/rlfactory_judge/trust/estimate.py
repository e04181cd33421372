"""A measured figure with its 95 % confidence interval, and the interval of a share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt

Z95 = 1.959963984540054  # the normal distribution's 97.5 % quantile
RESAMPLES = 1000  # of a bootstrap


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
