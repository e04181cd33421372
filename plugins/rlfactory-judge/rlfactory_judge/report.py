"""The section of a run's report on its judges: how far each agrees with people's labels, where that was measured."""

from __future__ import annotations

from collections.abc import Iterator

from rlfactory_core.reporting import RunData, Section
from rlfactory_judge.trust.calibration import Calibration, figures, verdict
from rlfactory_judge.trust.gate import kept_figures

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
    tables = [Section.of_table(_TITLE, columns, rows, " ".join(["In short:", verdict(found), *found.notes]))]
    if found.agreement is not None and (confusion := found.agreement.confusion) is not None:
        counts = [
            ("right", f"{confusion.right_accepted:,}", f"{confusion.right_rejected:,}"),
            ("wrong", f"{confusion.wrong_accepted:,}", f"{confusion.wrong_rejected:,}"),
        ]
        tables.append(Section.of_table(_TITLE, ("people's label", "the judge accepts", "rejects"), counts))
    yield from (table for table in tables if table is not None)
