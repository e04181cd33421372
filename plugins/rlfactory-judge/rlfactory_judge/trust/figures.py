"""Figures with their 95 % confidence intervals: shares, means, correlations, and agreement beyond chance."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan, sqrt
from typing import Any, Literal

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
    return Estimate(float(np.mean(values)), *_bootstrap([values], np.mean, seed), len(values))


def correlation(x: Sequence[float], y: Sequence[float], kind: Literal["pearson", "spearman"]) -> Estimate | None:
    """Pearson's correlation, or Spearman's of the ranks; None where a series is constant or shorter than two.

    The interval is R. A. Fisher's: ``tanh(atanh(r) ± 1.96 sqrt(v / (n - 3)))``, with v = 1, and for ranks v = 1 + r²/2
    (D. G. Bonett and T. A. Wright, Psychometrika 65, 2000).
    """
    import numpy as np
    from scipy import stats

    size = len(x)
    if min(len(set(x)), len(set(y))) < 2:
        return None
    rows = (x, y) if kind == "pearson" else (stats.rankdata(x), stats.rankdata(y))
    value = float(np.clip(np.corrcoef(*rows)[0, 1], -1.0, 1.0))
    if size < _FEWEST:
        return Estimate(value, -1.0, 1.0, size)
    half = Z95 * sqrt((1.0 if kind == "pearson" else 1.0 + value * value / 2) / (size - 3))
    with np.errstate(divide="ignore"):  # the infinite values of -1 and 1
        centre = np.arctanh(value)
    return Estimate(value, float(np.tanh(centre - half)), float(np.tanh(centre + half)), size)


def weighted_kappa(labels: Sequence[float], scores: Sequence[float], seed: int) -> Estimate | None:
    """Cohen's kappa of graded labels, weighted by squared distances, with a bootstrap interval; None if undefined.

    ``1 - sum (a_i - b_i)² / mean_j sum_i (a_i - b_j)²``: 1 is always equal, 0 as by chance. J. Cohen, Weighted kappa,
    Psychological Bulletin 70 (1968).
    """
    import numpy as np

    def found(a: Any, b: Any, axis: int = -1) -> Any:
        by_chance = np.var(a, axis) + np.var(b, axis) + (np.mean(a, axis) - np.mean(b, axis)) ** 2
        with np.errstate(invalid="ignore", divide="ignore"):
            return 1 - np.mean((a - b) ** 2, axis) / by_chance

    if len(set(labels)) < 2:
        return None
    rows = [np.asarray(labels, float), np.asarray(scores, float)]
    return Estimate(float(found(rows[0], rows[1])), *_bootstrap(rows, found, seed), len(labels))


def _bootstrap(rows: Sequence[Any], figure: Callable[..., Any], seed: int) -> tuple[float, float]:
    """A percentile interval (B. Efron, Annals of Statistics 7, 1979), without resamples that have no such figure."""
    import numpy as np
    from scipy import stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)  # all resamples equal is an answer here
        found = stats.bootstrap(
            tuple(map(np.asarray, rows)), figure, n_resamples=RESAMPLES, batch=_BATCH, vectorized=True, paired=True,
            method="percentile", rng=np.random.default_rng(seed),
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
    people = Counter(a for pair in pairs for a, _ in pair)
    if len(people) == 1:
        return Agreement(len(pairs), accuracy, None, "all labels are the same")
    codes = _codes(pairs)
    value = float(_kappa(codes))
    if value == 1.0:  # all resamples would be equal, so the accuracy's lower bound is put into kappa's formula
        by_chance = sum(count * count for count in people.values()) / people.total() ** 2
        bounds = ((accuracy.low - by_chance) / (1 - by_chance), 1.0)
    else:
        bounds = _bootstrap([range(len(pairs))], lambda drawn, axis: _kappa(codes[drawn]), seed)
    return Agreement(len(pairs), accuracy, Estimate(value, *bounds, len(pairs)))


def kappa(observations: Iterable[Observation]) -> float | None:
    """Agreement beyond chance: 1 is always equal, 0 as by chance; None if undefined.

    ``1 - d_o / d_e``: the observed share of different verdicts, and that of raters who guess with these frequencies.
    J. Cohen, Educational and Psychological Measurement 20 (1960).
    """
    rows = [list(observations)]
    value = float(_kappa(_codes(rows))) if rows[0] else nan
    return None if isnan(value) else value


def _codes(clusters: Sequence[Sequence[Observation]]) -> Any:
    """The verdicts as numbers from 0: cluster, observation, people or judge."""
    import numpy as np

    names: dict[Hashable, int] = {}
    return np.array([[[names.setdefault(name, len(names)) for name in o] for o in each] for each in clusters])


def _kappa(codes: Any) -> Any:
    """Kappa over the last three axes, in integers up to the division; not a number if undefined."""
    import numpy as np

    people, judge = codes[..., 0], codes[..., 1]
    size = people.shape[-2] * people.shape[-1]
    equal = np.sum(people == judge, (-2, -1))
    by_chance = sum(  # times size squared
        np.sum(people == name, (-2, -1)) * np.sum(judge == name, (-2, -1)) for name in range(codes.max() + 1)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        return 1 - size * (size - equal) / (size * size - by_chance)


@dataclass(frozen=True, slots=True)
class SelfConsistency:
    """The consistency of several replies to each question, sampled at a temperature above 0.

    ``agreeing`` is always at least one half. For random verdicts it is 0.75 with three samples.
    """

    answers: int  # with at least two readable replies
    samples: int  # that were asked for, of each
    temperature: float
    agreeing: Estimate | None  # mean share of the replies that say what most of them say
    unanimous: Estimate | None  # share of the answers whose replies all say the same
    majority: Agreement  # of the majority's verdict with the labels: what that many votes would bring


def self_consistency(
    verdicts: Sequence[tuple[bool, Sequence[bool]]], *, samples: int, temperature: float, seed: int
) -> SelfConsistency:
    """The consistency for (label, accepted in each readable reply) of each answer; a tie counts as rejected."""
    several = [(label, replies) for label, replies in verdicts if len(replies) >= 2]
    agreeing = sum(max(sum(replies), len(replies) - sum(replies)) / len(replies) for _, replies in several)
    return SelfConsistency(
        answers=len(several),
        samples=samples,
        temperature=temperature,
        agreeing=share(min(agreeing, len(several)), len(several)),
        unanimous=share(sum(len(set(replies)) == 1 for _, replies in several), len(several)),
        majority=agreement_of_answers([(label, 2 * sum(replies) > len(replies)) for label, replies in several], seed),
    )
