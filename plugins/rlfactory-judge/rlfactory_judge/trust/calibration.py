"""All measurements of a judge as one record: their computation from the judgements, and their text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter

from rlfactory_core.reporting.progress import count_text
from rlfactory_judge.options import SINGLE
from rlfactory_judge.trust.figures import (
    Agreement,
    Estimate,
    agreement_of_answers,
    agreement_of_pairs,
    length_bias,
    mean,
    share,
    weighted_kappa,
)
from rlfactory_judge.trust.measuring import Judged, Measurement, label_value, right

FEW = 30  # answers or pairs; with fewer, no figure is reliable
_NAME_WIDTH = 36
Row = tuple[str, Estimate | None, str]  # the figure's name, its value, its basis or meaning


@dataclass(frozen=True, slots=True)
class PositionBias:
    """The bias of pairs judged in both orders. Without bias: changed 0, first 0.5."""

    pairs: int
    changed: Estimate | None  # share of the pairs whose winner changes if the order is swapped
    first: Estimate | None  # share of the wins that the first place has; None: no wins


@dataclass(frozen=True, slots=True)
class InjectionBias:
    """False accepts of wrong answers with injected texts, compared with the same answers without."""

    answers: int
    judgements: int
    accepted: Estimate | None  # share of the injected answers; the interval is over answers, not over judgements
    accepted_before: Estimate | None  # share of the same answers without injection
    added: Estimate | None  # how much larger the first share is, over answers; without bias: 0


@dataclass(frozen=True, slots=True)
class SelfConsistency:
    """The consistency of several replies to each question, sampled at a temperature above 0."""

    answers: int  # with at least two readable replies
    samples: int  # that were asked for, of each
    temperature: float
    agreeing: Estimate | None  # mean share of the replies that say what most of them say, which is at least one half


@dataclass(frozen=True, slots=True)
class Costs:
    """The total cost of a measurement."""

    judgements: int
    unreadable: int  # judgements whose replies did not have the required form
    unavailable: int  # judgements without a reply
    tokens: int  # prompts and replies


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
        plain: dict[str, Any] = TypeAdapter(Calibration).dump_python(self, mode="json")
        return plain

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Calibration:
        """The reverse of `to_dict`; raises `ValueError` for anything else."""
        return TypeAdapter(Calibration).validate_python(dict(data))


def summarise(measurement: Measurement, *, stopped: str = "") -> Calibration:
    """The figures from the judgements so far; ``stopped`` says why the caller stopped the measurement, if it did."""
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
        costs=_costs(measurement.judgements),
        notes=tuple(_notes(answers, pairs, truths, measurement.judgements)),
        stopped=stopped or measurement.stopped,
    )


def _pairs(measurement: Measurement) -> tuple[Agreement | None, PositionBias | None]:
    seen, observed = [], []
    for row in measurement.labels.pairs:
        straight, swapped = measurement.pairs.get(row.id, (Judged(), Judged()))
        better = {None: 0, 0: 1, 1: -1}[row.better]  # as in `_winner`
        if "unreadable" in (straight.failure, swapped.failure):
            observed.append([(better, -better or 1), (-better, better or 1)])
        if straight.replies and swapped.replies:
            seen.append((_winner(straight), _winner(swapped)))
            observed.append([(better, seen[-1][0]), (-better, seen[-1][1])])
    if not measurement.pairs:
        return None, None
    changed = sum(straight != -swapped for straight, swapped in seen)
    won = [place for pair in seen for place in pair if place]
    first = share(sum(place > 0 for place in won), len(won))
    position = PositionBias(len(seen), share(changed, len(seen)), first)
    return agreement_of_pairs(observed, measurement.options.seed), position


def _winner(judged: Judged) -> int:
    """1: the answer in the first place is better, -1: that in the second, 0: neither."""
    first, second = judged.values
    return (first > second) - (first < second)


def _injection(measurement: Measurement, accepted: Mapping[str, bool]) -> InjectionBias | None:
    injected, size = measurement.injected, len(measurement.injected)
    if not injected:
        return None
    return InjectionBias(
        answers=size,
        judgements=sum(map(len, injected.values())),
        accepted=share(min(sum(map(fmean, injected.values())), size), size),
        accepted_before=share(sum(accepted[name] for name in injected), size),
        added=mean([fmean(each) - accepted[name] for name, each in injected.items()], measurement.options.seed),
    )


def _consistency(measurement: Measurement) -> SelfConsistency | None:
    if not measurement.again:
        return None
    shares = []
    for judged in measurement.again.values():
        accepted = [one.accepts(measurement.options.threshold) for one in judged if one.replies]
        if len(accepted) >= 2:
            shares.append(max(accepted.count(True), accepted.count(False)) / len(accepted))
    agreeing = share(min(sum(shares), len(shares)), len(shares))
    return SelfConsistency(len(shares), measurement.samples, measurement.temperature, agreeing)


def _costs(judged: Sequence[Judged]) -> Costs:
    tokens = sum(reply.prompt_tokens + reply.sampled_tokens for one in judged for reply in one.replies)
    failed = Counter(one.failure for one in judged)
    return Costs(len(judged), failed["unreadable"], failed["unavailable"], tokens)


def _notes(
    answers: Agreement | None, pairs: Agreement | None, truths: Sequence[bool], judged: Sequence[Judged]
) -> Iterator[str]:
    for kind, agreement in (("answers", answers), ("pairs", pairs)):
        if agreement is not None and agreement.n < FEW:
            yield f"{agreement.n} judged {kind} are few: look at the intervals."
    if len(set(truths)) == 1:
        yield f"All judged answers are labelled {'right' if truths[0] else 'wrong'}: kappa needs answers of both kinds."
    for failure, what in (
        ("unreadable", "could not be read, and count as disagreement"),
        ("unavailable", "did not come; what is missing counts nowhere"),
    ):
        messages = [one.message for one in judged if one.failure == failure]
        if messages:
            yield f"{count_text(len(messages), 'judgement')} {what}. The first: {messages[0]}"


def calibration_text(found: Calibration) -> str:
    """The text, without a final end of line."""
    who = f"{found.judge or 'the judge'}, rubric {found.rubric}, mode {found.mode}"
    votes = f", median of {found.votes} votes" if found.votes > 1 else ""
    lines = [f"{who}, accepts from {found.threshold:g} of 1{votes}"]
    for title, rows in figures(found):
        lines += ["", title, *(_line(*row) for row in rows)]
    cost = found.costs
    failed = f"{cost.unreadable:,} unreadable, {cost.unavailable:,} unavailable"
    lines += ["", f"{count_text(cost.judgements, 'judgement')}, {failed}; {cost.tokens:,} tokens", ""]
    lines += [f"Note: {note}" for note in found.notes]
    if found.stopped:
        lines.append(f"Not complete: {found.stopped}")
    return "\n".join([*lines, f"In short: {verdict(found)}"])


def verdict(found: Calibration) -> str:
    """A summary in one line, with the decisive figures that the intervals support."""
    agreement = found.agreement
    if agreement is None or agreement.n == 0:
        return "nothing was judged, so nothing is known."
    kappa, confusion = agreement.kappa, agreement.confusion
    if kappa is None:
        parts = [f"no kappa, because {agreement.why_no_kappa}"]
    else:
        shown = f"kappa {kappa.value:.2f} [{kappa.low:.2f}, {kappa.high:.2f}]"
        parts = [shown if kappa.low > 0 else f"{shown}; that may be chance"]
    if confusion is not None and confusion.false_accepts is not None:
        parts.append(f"accepts {confusion.false_accepts.value:.0%} of wrong answers")
    if confusion is not None and confusion.false_rejects is not None:
        parts.append(f"rejects {confusion.false_rejects.value:.0%} of right ones")
    return "; ".join(parts) + "."


def figures(found: Calibration) -> Iterator[tuple[str, list[Row]]]:
    """What was measured: titles, each with its figures."""
    if found.answers is not None:
        graded: Row = ("weighted kappa with the labels", found.weighted_kappa, "0: as by chance, 1: always equal")
        yield "Answers", [*_agreement(found.answers, "answer"), *([graded] if graded[1] is not None else [])]
    if found.pairs is not None and (position := found.position) is not None:
        of_places: list[Row] = [
            ("winner changes with the order", position.changed, "0: never"),
            ("the first place wins", position.first, "0.5: no bias" if position.first else "no winners"),
        ]
        yield "Pairs, each in both orders", [*_agreement(found.pairs, "pair"), *of_places]
    if found.answers is not None:
        length: Row = ("longer answers, better scores", found.length, "rank correlation; 0: no bias")
        yield "Length in characters, with what a score has beyond the label", [length]
    if (injection := found.injection) is not None:
        rows: list[Row] = [
            ("wrong answers accepted with", injection.accepted, f"of {count_text(injection.answers, 'answer')}"),
            ("wrong answers accepted without", injection.accepted_before, "the same answers"),
            ("difference", injection.added, "0: no bias"),
        ]
        yield f"Injected texts, {count_text(injection.judgements, 'judgement')}", rows
    if (again := found.consistency) is not None:
        of_what = f"of {count_text(again.answers, 'answer')}; at least 0.5"
        agreeing: Row = ("replies that agree with most", again.agreeing, of_what)
        yield f"Asked {again.samples} times at temperature {again.temperature:g}", [agreeing]


def _agreement(found: Agreement, kind: str) -> Iterator[Row]:
    yield "agreement", found.accuracy, f"of {count_text(found.n, kind)}"
    yield "Cohen's kappa", found.kappa, found.why_no_kappa or "0: as by chance, 1: always"
    if (confusion := found.confusion) is not None:
        accepts, rejects = confusion.false_accepts, confusion.false_rejects
        yield "wrong answers accepted", accepts, f"{confusion.wrong_accepted:,} of {accepts.n if accepts else 0:,}"
        yield "right answers rejected", rejects, f"{confusion.right_rejected:,} of {rejects.n if rejects else 0:,}"


def _line(name: str, found: Estimate | None, meaning: str) -> str:
    value = f"{'-':>7}{'':18}" if found is None else f"{found.value:7.3f}  [{found.low:6.3f}, {found.high:6.3f}]"
    return f"  {name:<{_NAME_WIDTH}}{value}  {meaning}".rstrip()
