"""Whether a judge says the same again when its reply is sampled anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlfactory_judge.trust.agreement import Agreement, agreement_of_answers
from rlfactory_judge.trust.estimate import Estimate, share


@dataclass(frozen=True, slots=True)
class SelfConsistency:
    """Of several replies to each question, sampled at a temperature above 0.

    ``agreeing`` is at least one half whatever the judge does; of verdicts by coin toss, 0.75 with three samples.
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
    """Of (label, accepted in each readable reply) for each answer; a tie of the replies rejects."""
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
