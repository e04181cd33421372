"""A benchmark's own table of an evaluation, such as that of its leaderboard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.types import Group

GREEDY, SAMPLED = "greedy", "sampled"
_FILES = {GREEDY: "eval-after", SAMPLED: "eval-after-sampled"}


@dataclass(frozen=True, slots=True)
class EvalTable:
    """What an evaluation prints below its results, and saves in ``summary.json``.

    Args:
        columns: headings.
        rows: with as many cells as columns; None: not measured.
        notes: lines below the table: what the numbers depend on, such as versions and prompts.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        if wrong := [row for row in self.rows if len(row) != len(self.columns)]:
            raise ValueError(f"the table {self.title!r} has the columns {list(self.columns)}, and the row {wrong[0]}")

    @property
    def texts(self) -> list[list[str]]:
        """The rows as texts; numbers have three decimals, unless they are whole."""
        return [["" if cell is None else cell_text(cell) for cell in row] for row in self.rows]

    def record(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def cell_text(cell: str | float) -> str:
    """A cell as a text."""
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def saved_passes(folder: RunFolder) -> Mapping[str, Sequence[Group]]:
    """The saved attempts of an evaluation by sample: of its greedy pass, and of the sampled one if it was played."""
    found = {name: list(_groups(folder, file)) for name, file in _FILES.items()}
    return {name: groups for name, groups in found.items() if groups}


def _groups(folder: RunFolder, file: str) -> Iterable[Group]:
    saved = (each.trajectory for each in folder.read_trajectories(file))
    for _, attempts in groupby(saved, key=lambda each: (each.sample.task, each.sample.id)):
        first, *others = attempts
        yield Group(first.sample, (first, *others))
