"""All measurements of a judge as one record, and their computation from the judgements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_core.reporting.progress import count_text
from rlfactory_judge.options import SINGLE
from rlfactory_judge.trust.bias import (
    InjectionBias,
    PositionBias,
    injection_bias,
    length_bias,
    position_bias,
    winner,
)
from rlfactory_judge.trust.figures import (
    Agreement,
    Estimate,
    SelfConsistency,
    agreement_of_answers,
    agreement_of_pairs,
    self_consistency,
    weighted_kappa,
)
from rlfactory_judge.trust.measuring import Judged, Measurement, label_value, right


@dataclass(frozen=True, slots=True)
class Costs:
    """The total cost of a measurement."""

    judgements: int
    unreadable: int  # judgements whose replies did not have the required form
    unavailable: int  # judgements without a reply
    tokens: int  # prompts and replies


def costs_of(judged: Sequence[Judged]) -> Costs:
    """The costs of all judgements of a measurement."""
    tokens = sum(reply.prompt_tokens + reply.sampled_tokens for one in judged for reply in one.replies)
    failed = Counter(one.failure for one in judged)
    return Costs(len(judged), failed["unreadable"], failed["unavailable"], tokens)


FEW = 30  # answers or pairs; with fewer, no figure is reliable


@dataclass(frozen=True, slots=True)
class Calibration:
    """The measurements of a judge. None means not measured, or not measurable with these labels."""

    judge: str  # the model and its address
    rubric: str
    rubric_fingerprint: str
    mode: str
    threshold: float  # on [0, 1]
    votes: int
    answers: Agreement | None  # of single answers with their labels
    pairs: Agreement | None  # of which of two answers is better
    position: PositionBias | None
    length: Estimate | None  # see `length_bias`
    injection: InjectionBias | None
    consistency: SelfConsistency | None
    costs: Costs
    notes: tuple[str, ...] = ()  # caveats
    stopped: str = ""  # why there are fewer judgements than planned; empty: complete
    weighted_kappa: Estimate | None = None  # of scores with labels that are numbers

    @property
    def agreement(self) -> Agreement | None:
        """The agreement that matters in a run: of answers, or of pairs in the modes that compare."""
        return self.answers if self.mode in SINGLE else self.pairs

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON data."""
        from pydantic import TypeAdapter

        plain: dict[str, Any] = TypeAdapter(Calibration).dump_python(self, mode="json")
        return plain

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Calibration:
        """The reverse of `to_dict`; raises `ValueError` for anything else."""
        from pydantic import TypeAdapter

        return TypeAdapter(Calibration).validate_python(dict(data))


def summarise(measurement: Measurement, *, stopped: str = "") -> Calibration:
    """The figures from the judgements so far.

    Args:
        stopped: why the caller stopped the measurement, if it did.
    """
    options, labels = measurement.options, measurement.labels
    seed, threshold = options.seed, options.threshold
    judged = [(row, measurement.answers[row.id]) for row in labels.answers if row.id in measurement.answers]
    readable = [(row, one) for row, one in judged if one.replies]
    accepted = {row.id: one.accepts(threshold) for row, one in readable}
    truths = [right(row, options) for row, _ in readable]
    values, scores = [label_value(row, options) for row, _ in readable], [one.values[0] for _, one in readable]
    graded = any(not isinstance(row.label, bool) for row, _ in readable)
    unreadable = [right(row, options) for row, one in judged if one.failure == "unreadable" and readable]
    observed = [*zip(truths, accepted.values(), strict=True), *((truth, not truth) for truth in unreadable)]
    answers = agreement_of_answers(observed, seed) if judged else None
    pairs, position = _pairs(measurement)
    lengths = [len(row.answer) for row, _ in readable]
    costs = costs_of(measurement.judgements)
    return Calibration(
        judge=measurement.judge,
        rubric=options.rubric,
        rubric_fingerprint=measurement.rubric.fingerprint,
        mode=options.mode,
        threshold=threshold,
        votes=options.votes,
        answers=answers,
        pairs=pairs,
        weighted_kappa=weighted_kappa(values, scores, seed) if graded else None,
        position=position,
        length=length_bias(lengths, scores, values),
        injection=_injection(measurement, accepted),
        consistency=_consistency(measurement),
        costs=costs,
        notes=(*_notes(answers, pairs, truths), *_failures(costs, measurement.judgements)),
        stopped=stopped or measurement.stopped,
    )


def _pairs(measurement: Measurement) -> tuple[Agreement | None, PositionBias | None]:
    seen, observed = [], []
    for row in measurement.labels.pairs:
        straight, swapped = measurement.pairs.get(row.id, (Judged(), Judged()))
        better = {None: 0, 0: 1, 1: -1}[row.better]  # as in `winner`
        if "unreadable" in (straight.failure, swapped.failure):
            observed.append([(better, -better or 1), (-better, better or 1)])
        if straight.replies and swapped.replies:
            seen.append((winner(straight.values), winner(swapped.values)))
            observed.append([(better, seen[-1][0]), (-better, seen[-1][1])])
    if not measurement.pairs:
        return None, None
    return agreement_of_pairs(observed, measurement.options.seed), position_bias(seen)


def _injection(measurement: Measurement, accepted: Mapping[str, bool]) -> InjectionBias | None:
    """Before: whether an answer was accepted, or in what share of both orders the worse one of a pair was preferred."""
    if not measurement.injected:
        return None
    before = {name: float(each) for name, each in accepted.items()}
    for row in measurement.labels.pairs:
        both = measurement.pairs.get(row.id, ())
        if row.better is not None and both and all(one.replies for one in both):
            straight, swapped = (winner(one.values) for one in both)
            sign = 1 if row.better == 1 else -1  # the first answer is the worse one; it stands first, then second
            before[row.id] = ((straight == sign) + (swapped == -sign)) / 2
    return injection_bias(measurement.injected, before, measurement.options.seed)


def _consistency(measurement: Measurement) -> SelfConsistency | None:
    options, again = measurement.options, measurement.again
    if not again:
        return None
    verdicts = [
        [one.accepts(options.threshold) for one in again[row.id] if one.replies]
        for row in measurement.labels.answers
        if row.id in again
    ]
    return self_consistency(verdicts, samples=measurement.samples, temperature=measurement.temperature)


def _notes(answers: Agreement | None, pairs: Agreement | None, truths: Sequence[bool]) -> list[str]:
    notes = []
    for kind, agreement in (("answers", answers), ("pairs", pairs)):
        if agreement is not None and agreement.n < FEW:
            notes.append(f"{agreement.n} judged {kind} are few: look at the intervals.")
    if truths and len(set(truths)) == 1:
        notes.append(
            f"All judged answers are labelled {'right' if truths[0] else 'wrong'}: kappa needs answers of both kinds."
        )
    return notes


def _failures(costs: Costs, judged: Iterable[Judged]) -> Iterator[str]:
    first: dict[str, str] = {}
    for one in judged:
        first.setdefault(one.failure, one.message)
    if costs.unreadable:
        unread = count_text(costs.unreadable, "judgement")
        yield f"{unread} could not be read, and count as disagreement. The first: {first['unreadable']}"
    if costs.unavailable:
        missing = count_text(costs.unavailable, "judgement")
        yield f"{missing} did not come; what is missing counts nowhere. The first: {first['unavailable']}"
