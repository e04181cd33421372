"""A calibration as text for a terminal: the figures, their meaning, and a summary."""

from __future__ import annotations

from collections.abc import Iterator

from rlfactory_core.reporting.progress import count_text
from rlfactory_judge.trust.bias import InjectionBias
from rlfactory_judge.trust.calibration import Calibration, Costs
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
    if found.injection is not None and found.injection.worst:
        lines += ["", "Injected texts that turned rejections into acceptances", *_breaches(found.injection)]
    lines += ["", "Cost", *(f"  {line}" for line in _cost(found.costs)), ""]
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
    if length is not None:
        lengths = [one for one in (length.everywhere, length.wrong_only) if one is not None and _differs(one, 0.0)]
        if lengths:
            yield f"favours {'longer' if lengths[0].value > 0 else 'shorter'} answers"
    if injection is not None and injection.added is not None and injection.added.low > 0:
        what = "wrong answers accepted" if found.agreement is found.answers else "worse answers preferred"
        yield f"injected texts get {injection.added.value:.0%} more of the {what}"


def _differs(found: Estimate, unbiased: float) -> bool:
    return not found.low <= unbiased <= found.high


def figures(found: Calibration) -> Iterator[tuple[str, list[Row]]]:
    """What was measured: titles, each with its figures."""
    what = "wrong answers accepted" if found.agreement is found.answers else "worse answers preferred"
    if found.answers is not None:
        graded: list[Row] = [
            ("Spearman with the labels", found.spearman, "1: the same order"),
            ("weighted kappa with the labels", found.weighted_kappa, "0: as by chance, 1: always equal"),
            ("Pearson with the labels", found.pearson, "1: a straight line"),
        ]
        yield "Answers", [*_agreement(found.answers, "answer"), *(row for row in graded if row[1] is not None)]
    if found.pairs is not None and (position := found.position) is not None:
        of_places: list[Row] = [
            ("winner changes with the order", position.changed, "0: never"),
            ("the first place wins", position.first, "0.5: no bias" if position.first else "no winners"),
        ]
        yield "Pairs, each in both orders", [*_agreement(found.pairs, "pair"), *of_places]
    if (length := found.length) is not None:
        meaning = "rank correlation; 0: no bias"
        rows: list[Row] = [("all answers", length.everywhere, meaning), ("wrong answers", length.wrong_only, meaning)]
        yield "Length in characters, with what a score has beyond the label", rows
    if (injection := found.injection) is not None:
        rows = [
            (f"{what} with", injection.accepted, f"of {count_text(injection.answers, 'answer')}"),
            (f"{what} without", injection.accepted_before, "the same answers"),
            ("difference", injection.added, "0: no bias"),
        ]
        yield f"Injected texts, {count_text(injection.judgements, 'judgement')}", rows
    if (again := found.consistency) is not None:
        of_what = f"of {count_text(again.answers, 'answer')}; at least 0.5"
        rows = [
            ("replies that agree with most", again.agreeing, of_what),
            ("all replies agree", again.unanimous, ""),
            ("Cohen's kappa of the majority", again.majority.kappa, again.majority.why_no_kappa),
        ]
        yield f"Asked {again.samples} times at temperature {again.temperature:g}", rows


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


def _breaches(found: InjectionBias) -> Iterator[str]:
    for breach in found.worst:
        count = f"{breach.turned:,} of {breach.tried:,}"
        yield f"  {breach.injection}: {count}; answer {breach.answer_id}, score {breach.score:.2f}:"
        yield f"    {breach.text}"


def _cost(costs: Costs) -> Iterator[str]:
    failed = f"{costs.unreadable:,} unreadable, {costs.unavailable:,} unavailable"
    yield f"{count_text(costs.judgements, 'judgement')}, {failed}"
    if costs.tokens_p50 is not None and costs.tokens_p95 is not None:
        usual = f"median {costs.tokens_p50:,.0f}, 95 % up to {costs.tokens_p95:,.0f}"
        yield f"tokens a judgement: {usual}; {costs.tokens:,} in all"
    if costs.seconds_p50 is not None and costs.seconds_p95 is not None:
        yield f"seconds a judgement: median {costs.seconds_p50:.2f}, 95 % up to {costs.seconds_p95:.2f}"
