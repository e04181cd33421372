"""The agreement of a judge with people, and how much of it is beyond chance."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from rlfactory_judge.trust.estimate import RESAMPLES, Estimate, middle, share

_FEWEST_DEFINED = 0.5  # share of the resamples in which kappa has to be defined for an interval

Observation = tuple[Hashable, Hashable]  # people's verdict, the judge's verdict


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
    return _agreement([[each] for each in observations], seed, confusion)


def agreement_of_pairs(pairs: Sequence[Sequence[Observation]], seed: int = 0) -> Agreement:
    """The agreement on the better place, in both orders: ``pairs[i]`` holds the observations of one pair.

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


def kappa(observations: Iterable[Observation]) -> float | None:
    """Agreement beyond chance: ``(p_o - p_e) / (1 - p_e)``.

    ``p_o`` is the share of equal verdicts. ``p_e`` is the share that raters would have who guess with these
    frequencies, ``sum(p_people(c) p_judge(c))``. 1: always equal; 0: as by chance. J. Cohen, A coefficient of
    agreement for nominal scales, Educational and Psychological Measurement 20 (1960).

    Args:
        observations: or a `Counter` of them.

    Returns:
        None if undefined: without observations, or if both raters always give the same single verdict. It is computed
        in integers up to the last division, so that the order of the observations does not matter.
    """
    cells = Counter(observations)
    size = cells.total()
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

    Without any disagreement, all resamples are equal, and their interval would be a single point. Then the lower bound
    of the accuracy is put into kappa's formula, with the same agreement by chance.
    """
    if value == 1.0:
        accuracy = share(len(clusters), len(clusters))
        assert accuracy is not None
        people = Counter(a for cluster in clusters for a, _ in cluster)
        by_chance = sum(count * count for count in people.values()) / sum(people.values()) ** 2
        return ((accuracy.low - by_chance) / (1 - by_chance), 1.0)
    kinds = Counter(tuple(cluster) for cluster in clusters)  # drawing the few kinds by frequency is equivalent
    names, weights = list(kinds), list(kinds.values())
    rng = random.Random(seed)
    found = []
    for _ in range(RESAMPLES):
        cells: Counter[Observation] = Counter()
        for name, count in Counter(rng.choices(names, weights, k=len(clusters))).items():
            for each in name:
                cells[each] += count
        found.append(kappa(cells))
    defined = sorted(each for each in found if each is not None)
    if len(defined) < _FEWEST_DEFINED * RESAMPLES:
        return (-1.0, 1.0)
    return middle(defined)


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
