"""A calibration as text for a terminal: the figures, their meaning, and a summary."""

from __future__ import annotations

from collections.abc import Iterator

from rlfactory_core.reporting.progress import count_text
from rlfactory_judge.trust.calibration import Calibration
from rlfactory_judge.trust.figures import Agreement, Estimate

_NAME_WIDTH = 36
Row = tuple[str, Estimate | None, str]  # the figure's name, its value, its basis or meaning


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
    return "; ".join([*parts, *_weaknesses(found)]) + "."


def _weaknesses(found: Calibration) -> Iterator[str]:
    position, length, injection = found.position, found.length, found.injection
    if position is not None and position.first is not None and _differs(position.first, 0.5):
        yield f"favours the {'first' if position.first.value > 0.5 else 'second'} place"
    if length is not None and _differs(length, 0.0):
        yield f"favours {'longer' if length.value > 0 else 'shorter'} answers"
    if injection is not None and injection.added is not None and injection.added.low > 0:
        what = "wrong answers accepted" if found.agreement is found.answers else "worse answers preferred"
        yield f"injected texts get {injection.added.value:.0%} more of the {what}"


def _differs(found: Estimate, unbiased: float) -> bool:
    return not found.low <= unbiased <= found.high


def figures(found: Calibration) -> Iterator[tuple[str, list[Row]]]:
    """What was measured: titles, each with its figures."""
    what = "wrong answers accepted" if found.agreement is found.answers else "worse answers preferred"
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
            (f"{what} with", injection.accepted, f"of {count_text(injection.answers, 'answer')}"),
            (f"{what} without", injection.accepted_before, "the same answers"),
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
