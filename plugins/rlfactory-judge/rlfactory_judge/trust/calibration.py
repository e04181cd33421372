"""All measurements of a judge as one record: their computation from the judgements, and their text."""

from __future__ import annotations

from collections import Counter, defaultdict
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
    share,
)
from rlfactory_judge.trust.measuring import Judged, Judgements, Measurement, right

FEW = 30  # answers or pairs; with fewer, no figure is reliable
_NAME_WIDTH = 36
INJECTED, ACCEPTED = "Injected texts", "wrong answers accepted with"
PAIRS, FIRST = "Pairs, each in both orders", "the first place wins"


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure, and what it is about."""

    estimate: Estimate | None  # None: not measurable with these labels
    meaning: str  # its basis, or its value without bias


Table = dict[str, Figure]  # by the figures' names


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
    tables: dict[str, Table]  # all that was measured, agreement included, by title
    costs: Costs
    notes: tuple[str, ...] = ()  # caveats
    stopped: str = ""  # why there are fewer judgements than planned; empty: complete

    @property
    def agreement(self) -> Agreement | None:
        """The agreement that matters in a run: of answers, or of pairs in the modes that compare."""
        return self.answers if self.mode in SINGLE else self.pairs

    @property
    def injected(self) -> Estimate | None:
        """The share of wrong answers that are accepted with an injected text."""
        return self._estimate(INJECTED, ACCEPTED)

    @property
    def place(self) -> Estimate | None:
        """The share of decided comparisons that the place wins which wins more of them; 0.5 without bias."""
        found = self._estimate(PAIRS, FIRST)
        if found is None or found.value >= 0.5:
            return found
        return Estimate(1 - found.value, 1 - found.high, 1 - found.low, found.n)

    def _estimate(self, table: str, figure: str) -> Estimate | None:
        found = self.tables.get(table, {}).get(figure)
        return None if found is None else found.estimate

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON data."""
        plain: dict[str, Any] = TypeAdapter(Calibration).dump_python(self, mode="json")
        return plain

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Calibration:
        """The reverse of `to_dict`; raises `ValueError` for anything else."""
        return TypeAdapter(Calibration).validate_python(dict(data))


def summarise(measurement: Measurement) -> Calibration:
    """The figures from the judgements so far."""
    options = measurement.options
    judged = [(row, one) for row in measurement.labels.answers if (one := measurement.answers.get((row.id, 0)))]
    readable = [(row, one) for row, one in judged if one.replies]
    truths = [right(row, options) for row, _ in readable]
    accepted = [one.accepts(options.threshold) for _, one in readable]
    unreadable = [right(row, options) for row, one in judged if one.failure == "unreadable" and readable]
    observed = [*zip(truths, accepted, strict=True), *((truth, not truth) for truth in unreadable)]
    answers = agreement_of_answers(observed, options.seed) if judged else None
    pairs, winners = _pairs(measurement)
    judgements = measurement.judgements
    failed = Counter(one.failure for one in judgements)
    tokens = sum(reply.prompt_tokens + reply.sampled_tokens for one in judgements for reply in one.replies)
    return Calibration(
        judge=measurement.judge,
        rubric=options.rubric,
        rubric_fingerprint=measurement.rubric.fingerprint,
        mode=options.mode,
        threshold=options.threshold,
        votes=options.votes,
        answers=answers,
        pairs=pairs,
        tables=_tables(measurement, answers, pairs, winners),
        costs=Costs(len(judgements), failed["unreadable"], failed["unavailable"], tokens),
        notes=tuple(_notes(answers, pairs, truths, judgements)),
        stopped=measurement.stopped,
    )


def _pairs(measurement: Measurement) -> tuple[Agreement | None, list[tuple[int, int]]]:
    """The agreement, and the winners of the readable pairs as in the file and swapped."""
    seen, observed = [], []
    for row in measurement.labels.pairs:
        straight, swapped = (measurement.pairs.get((row.id, order), Judged()) for order in (0, 1))
        better = {None: 0, 0: 1, 1: -1}[row.better]  # as in `_winner`
        if "unreadable" in (straight.failure, swapped.failure):
            observed.append([(better, -better or 1), (-better, better or 1)])
        if straight.replies and swapped.replies:
            seen.append((_winner(straight), _winner(swapped)))
            observed.append([(better, seen[-1][0]), (-better, seen[-1][1])])
    return agreement_of_pairs(observed, measurement.options.seed) if measurement.pairs else None, seen


def _winner(judged: Judged) -> int:
    """1: the answer in the first place is better, -1: that in the second, 0: neither."""
    first, second = judged.values
    return (first > second) - (first < second)


def _tables(
    measurement: Measurement,
    answers: Agreement | None,
    pairs: Agreement | None,
    winners: Sequence[tuple[int, int]],
) -> dict[str, Table]:
    options, tables = measurement.options, dict[str, Table]()
    if answers is not None:
        tables["Answers"] = _agreement(answers, "answer")
    if pairs is not None:
        changed = share(sum(straight != -swapped for straight, swapped in winners), len(winners))
        won = [place for pair in winners for place in pair if place]
        first = Figure(share(sum(place > 0 for place in won), len(won)), "0.5: no bias" if won else "no winners")
        places = {"winner changes with the order": Figure(changed, "0: never"), FIRST: first}
        tables[PAIRS] = {**_agreement(pairs, "pair"), **places}
    if injected := _accepted(measurement.injected, options.threshold):  # intervals over answers, not over judgements
        plain, size = _accepted(measurement.answers, options.threshold), len(injected)
        accepted, before = sum(map(fmean, injected.values())), sum(plain[name][0] for name in injected)
        judgements = count_text(sum(map(len, injected.values())), "judgement")
        basis = f"of {count_text(size, 'answer')}, {judgements}"
        tables[INJECTED] = {
            ACCEPTED: Figure(share(min(accepted, size), size), basis),
            "wrong answers accepted without": Figure(share(before, size), "the same answers"),
        }
    return tables


def _agreement(found: Agreement, kind: str) -> Table:
    table = {
        "agreement": Figure(found.accuracy, f"of {count_text(found.n, kind)}"),
        "Cohen's kappa": Figure(found.kappa, found.why_no_kappa or "0: as by chance, 1: always"),
    }
    if (counts := found.confusion) is not None:
        wrong, all_right = counts.wrong_accepted + counts.wrong_rejected, counts.right_accepted + counts.right_rejected
        table["wrong answers accepted"] = Figure(counts.false_accepts, f"{counts.wrong_accepted:,} of {wrong:,}")
        table["right answers rejected"] = Figure(counts.false_rejects, f"{counts.right_rejected:,} of {all_right:,}")
    return table


def _accepted(judgements: Judgements, threshold: float) -> dict[str, list[bool]]:
    """By label, whether each of its readable judgements accepts the answer."""
    found = defaultdict[str, list[bool]](list)
    for (name, _), one in judgements.items():
        if one.replies:
            found[name].append(one.accepts(threshold))
    return found


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
    for title, table in found.tables.items():
        lines += ["", title, *(_line(name, figure) for name, figure in table.items())]
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
    confusion = agreement.confusion
    parts = [_kappa_text("kappa", agreement)]
    if confusion is not None and confusion.false_accepts is not None:
        parts.append(f"accepts {confusion.false_accepts.value:.0%} of wrong answers")
    if confusion is not None and confusion.false_rejects is not None:
        parts.append(f"rejects {confusion.false_rejects.value:.0%} of right ones")
    if found.injected is not None:
        parts.append(f"accepts {found.injected.value:.0%} of wrong answers with a text for the judge")
    if found.pairs is not None and found.pairs is not agreement:
        parts.append(_kappa_text("kappa of pairs", found.pairs))
    if found.place is not None:
        parts.append(f"one place wins {found.place.value:.0%} of the comparisons")
    return "; ".join(parts) + "."


def _kappa_text(name: str, agreement: Agreement) -> str:
    kappa = agreement.kappa
    if kappa is None:
        return f"no {name}, because {agreement.why_no_kappa}"
    doubt = "" if kappa.low > 0 else ", which is worse than chance" if kappa.high < 0 else "; that may be chance"
    return f"{name} {kappa.value:.2f} [{kappa.low:.2f}, {kappa.high:.2f}]{doubt}"


def _line(name: str, figure: Figure) -> str:
    found = figure.estimate
    value = f"{'-':>7}{'':18}" if found is None else f"{found.value:7.3f}  [{found.low:6.3f}, {found.high:6.3f}]"
    return f"  {name:<{_NAME_WIDTH}}{value}  {figure.meaning}".rstrip()
