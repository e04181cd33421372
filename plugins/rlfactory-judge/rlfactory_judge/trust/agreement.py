"""How often a judge agrees with people, and how much of that is more than chance."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from rlfactory_judge.trust.estimate import RESAMPLES, Estimate, middle, share

_FEWEST_DEFINED = 0.5  # share of the resamples in which kappa has to be defined for an interval

Observation = tuple[Hashable, Hashable]  # what people say, what the judge says


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of answers by what people and the judge say of them."""

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
    """Of verdicts with labels.

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
    """Of (label, accepted) for each answer."""
    counts = Counter(observations)
    confusion = Confusion(counts[True, True], counts[True, False], counts[False, True], counts[False, False])
    return _agreement([[each] for each in observations], seed, confusion)


def agreement_of_pairs(pairs: Sequence[Sequence[Observation]], seed: int = 0) -> Agreement:
    """Of which place is better, once in each order of a pair: ``pairs[i]`` holds the observations of one pair.

    Places, not answers, are the categories: so the order in the file does not matter, and a judge that always names the
    first place has a kappa of 0.
    """
    return _agreement(pairs, seed, None)


def _agreement(clusters: Sequence[Sequence[Observation]], seed: int, confusion: Confusion | None) -> Agreement:
    clusters = [cluster for cluster in clusters if cluster]
    if not clusters:
        return Agreement(0, None, None, "nothing was judged", confusion)
    agreed = sum(sum(a == b for a, b in cluster) / len(cluster) for cluster in clusters)
    observations = [each for cluster in clusters for each in cluster]
    accuracy = share(min(agreed, len(clusters)), len(clusters))
    value = kappa(observations)
    if value is None or len({people for people, _ in observations}) == 1:
        return Agreement(len(clusters), accuracy, None, "all labels are the same", confusion)
    low, high = _kappa_interval(clusters, value, seed)
    return Agreement(len(clusters), accuracy, Estimate(value, low, high, len(clusters)), "", confusion)


def kappa(observations: Sequence[Observation]) -> float | None:
    """Agreement beyond chance: ``(p_o - p_e) / (1 - p_e)``.

    ``p_o`` is the share of equal verdicts, ``p_e`` the share that raters with these frequencies who know nothing would
    have, ``sum(p_people(c) p_judge(c))``. 1: equal throughout; 0: as by chance. J. Cohen, A coefficient of agreement
    for nominal scales, Educational and Psychological Measurement 20 (1960).

    Returns:
        None where it is undefined: without observations, and where both raters say one and the same throughout.
    """
    return _kappa(Counter(observations))


def _kappa(cells: Counter[Observation]) -> float | None:
    """In whole numbers up to the last division, so that nothing depends on the order of the observations."""
    size = sum(cells.values())
    people, judge = Counter[Hashable](), Counter[Hashable]()
    for (a, b), count in cells.items():
        people[a] += count
        judge[b] += count
    equal = sum(count for (a, b), count in cells.items() if a == b)
    by_chance = sum(count * judge[category] for category, count in people.items())  # times size squared
    if by_chance == size * size:
        return None
    return (size * equal - by_chance) / (size * size - by_chance)


def _kappa_interval(clusters: Sequence[Sequence[Observation]], value: float, seed: int) -> tuple[float, float]:
    """A percentile bootstrap (B. Efron, Annals of Statistics 7, 1979) over cases, without resamples that have no kappa.

    Without a single disagreement every resample agrees, too, and says nothing of the judgements that were not made. The
    lower bound is then that of the accuracy, put into kappa's formula with the same agreement by chance.
    """
    if value == 1.0:
        accuracy = share(len(clusters), len(clusters))
        assert accuracy is not None
        people = Counter(a for cluster in clusters for a, _ in cluster)
        by_chance = sum(count * count for count in people.values()) / sum(people.values()) ** 2
        return ((accuracy.low - by_chance) / (1 - by_chance), 1.0)
    kinds = Counter(tuple(cluster) for cluster in clusters)  # few: resampling kinds by their frequency is the same
    names, weights = list(kinds), list(kinds.values())
    rng = random.Random(seed)
    found = []
    for _ in range(RESAMPLES):
        cells: Counter[Observation] = Counter()
        for name, count in Counter(rng.choices(names, weights, k=len(clusters))).items():
            for each in name:
                cells[each] += count
        found.append(_kappa(cells))
    defined = sorted(each for each in found if each is not None)
    if len(defined) < _FEWEST_DEFINED * RESAMPLES:
        return (-1.0, 1.0)
    return middle(defined)
