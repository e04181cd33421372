"""The section of a run's report on its judges: how far each agrees with people's labels, where that was measured."""

from __future__ import annotations

from collections.abc import Iterator

from rlfactory_core.reporting import RunData, Section
from rlfactory_judge.trust.calibration import Calibration
from rlfactory_judge.trust.figures import Confusion
from rlfactory_judge.trust.gate import kept_figures
from rlfactory_judge.trust.text import figures, verdict

_TITLE = "Calibration of the judge"


def calibration(run: RunData) -> Section | None:
    """The figures that were kept before the run; None if it had no labels."""
    html = "".join(table.html for found in kept_figures(run.folder.path) for table in _tables(found))
    return Section(_TITLE, html) if html else None


def _tables(found: Calibration) -> Iterator[Section]:
    rows = [
        (name, f"{value.value:.3f}", f"{value.low:.3f} to {value.high:.3f}", meaning)
        for _, group in figures(found)
        for name, value, meaning in group
        if value is not None
    ]
    columns = (found.judge or "the judge", "value", "95 % confidence", "meaning")
    note = " ".join(["In short:", verdict(found), *found.notes])
    confusion = found.agreement.confusion if found.agreement is not None else None
    tables = [Section.of_table(_TITLE, columns, rows, note), _by_label(confusion) if confusion is not None else None]
    yield from (table for table in tables if table is not None)


def _by_label(found: Confusion) -> Section | None:
    rows = [
        ("right", found.right_accepted, found.right_rejected),
        ("wrong", found.wrong_accepted, found.wrong_rejected),
    ]
    texts = [(label, f"{accepted:,}", f"{rejected:,}") for label, accepted, rejected in rows]
    return Section.of_table(_TITLE, ("people's label", "the judge accepts", "rejects"), texts)
