"""Figures with their 95 % confidence intervals: shares, and agreement beyond chance."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlfactory_core.algo import wilson

RESAMPLES = 1000  # of a bootstrap
_BATCH = 100  # of them at a time, which bounds the memory
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
    low, high = wilson(count / size, size)
    return Estimate(count / size, low, high, size)


def _bootstrap(cases: Sequence[Any], figure: Callable[..., Any], seed: int) -> tuple[float, float]:
    """A percentile interval (B. Efron, Annals of Statistics 7, 1979), without resamples that have no such figure."""
    from scipy import stats  # takes a second to import, and the report's figures need none

    rows = np.asarray(cases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)  # all resamples equal is an answer here
        resampled = stats.bootstrap(
            (np.arange(len(rows)),), lambda drawn, axis: figure(rows[drawn], axis), n_resamples=RESAMPLES,
            batch=_BATCH, vectorized=True, method="percentile", rng=np.random.default_rng(seed),
        ).bootstrap_distribution  # fmt: skip
    defined = resampled[np.isfinite(resampled)]
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
    return Agreement(len(pairs), accuracy, _kappa_estimate(verdicts_of(pairs), seed))


def verdicts_of(pairs: Sequence[Sequence[Observation]]) -> Any:
    """Whether each verdict is each of the categories: cases, observations of each, people and judge, categories."""
    names = list({name: None for pair in pairs for observation in pair for name in observation})
    return np.array([[[[name == each for each in names] for name in observed] for observed in pair] for pair in pairs])


def _kappa_estimate(verdicts: Any, seed: int) -> Estimate:
    """Kappa with its interval. Without any disagreement all resamples would be equal: then Wilson's bound is used."""
    size, value = len(verdicts), float(kappa(verdicts))
    perfect = share(size, size)
    if value == 1.0 and perfect is not None:
        return Estimate(value, 1 - (1 - perfect.low) / float(1 - _by_chance(verdicts)), 1.0, size)
    return Estimate(value, *_bootstrap(verdicts, lambda drawn, axis: kappa(drawn), seed), size)


def kappa(verdicts: Any) -> Any:
    """Agreement beyond chance: 1 is always equal, 0 as by chance; not a number if undefined.

    ``(p_o - p_e) / (1 - p_e)`` (J. Cohen, Educational and Psychological Measurement 20, 1960): the share of equal
    verdicts, and that of verdicts that are independent, with these frequencies.

    Args:
        verdicts: as `verdicts_of`, perhaps with further dimensions before these.
    """
    agreed = np.mean(np.sum(verdicts[..., 0, :] & verdicts[..., 1, :], -1), (-2, -1))
    chance = _by_chance(verdicts)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.round((agreed - chance) / (1 - chance), 12) + 0.0  # no rounding error shows, and no -0


def _by_chance(verdicts: Any) -> Any:
    """The share of equal verdicts if people and judge were independent."""
    frequencies = verdicts.mean((-4, -3))
    return np.sum(frequencies[..., 0, :] * frequencies[..., 1, :], -1)
