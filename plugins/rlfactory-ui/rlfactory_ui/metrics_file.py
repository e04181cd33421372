"""A run's ``metrics.jsonl`` as it grows: each line is read once, and a long run keeps only some of its rows."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from pathlib import Path

Row = dict[str, float | None]

WHOLE = 2**20  # bytes; of what is longer, at its first reading, only some lines are parsed
KEPT = 200  # rows between two evaluations' rows that are kept, and as many of the latter
_EVALUATED = b'"eval/'


class MetricsFile:
    """`rows` are those to draw, in order, the last one always; `update` reads what was added since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []
        self._offset = 0
        self._file: tuple[int, int] | None = None  # device and inode: a resumed run writes a new file

    def update(self) -> bool:
        """Whether there are new rows."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        if self._file != (found.st_dev, found.st_ino) or found.st_size < self._offset:
            self.rows, self._offset, self._file = [], 0, (found.st_dev, found.st_ino)
        if found.st_size <= self._offset:
            return False
        before = len(self.rows), self._offset
        with self.path.open("rb") as file:
            if found.st_size - self._offset > WHOLE:
                self._sample(file.fileno())
            else:
                file.seek(self._offset)
                self._add(file.read())
        self.rows = _thinned(self.rows)
        return (len(self.rows), self._offset) != before

    def _add(self, text: bytes) -> None:
        end = text.rfind(b"\n") + 1  # a line that is being written has none yet
        self.rows += [row for line in text[:end].splitlines() if (row := _parsed(line)) is not None]
        self._offset += end

    def _sample(self, number: int) -> None:
        with mmap.mmap(number, 0, access=mmap.ACCESS_READ) as text:
            end = text.rfind(b"\n") + 1
            starts = {text.find(b"\n", at, end) + 1 for at in spread(self._offset, end - 1, KEPT)}
            evaluated = list(_places(text, self._offset, end))
            starts |= {text.rfind(b"\n", 0, evaluated[at]) + 1 for at in spread(0, len(evaluated) - 1, KEPT)}
            starts |= {self._offset, text.rfind(b"\n", 0, max(0, end - 1)) + 1}
            lines = (text[start : text.find(b"\n", start)] for start in sorted(starts) if self._offset <= start < end)
            self.rows += [row for line in lines if (row := _parsed(line)) is not None]
            self._offset = end


def _parsed(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:  # damaged: `rlfactory trace` says which line
        return None
    return row if isinstance(row, dict) else None


def _places(text: mmap.mmap, start: int, end: int) -> Iterator[int]:
    """One place in each line with an evaluation's results."""
    while (start := text.find(_EVALUATED, start, end)) >= 0:
        yield start
        start = text.find(b"\n", start, end)
        if start < 0:
            return


def spread(first: int, last: int, count: int) -> list[int]:
    """Up to ``count`` whole numbers from ``first`` to ``last``, at equal distances."""
    if last - first < count:
        return list(range(first, last + 1))
    return [first + (last - first) * at // (count - 1) for at in range(count)]


def _thinned(rows: list[Row]) -> list[Row]:
    """At most `KEPT` of the rows with results of an evaluation and of the others; the ends always."""
    if len(rows) <= 2 * KEPT:
        return rows
    evaluated = [at for at, row in enumerate(rows) if any(name.startswith("eval/") for name in row)]
    others = sorted(set(range(len(rows))) - set(evaluated))
    kept = {places[at] for places in (evaluated, others) for at in spread(0, len(places) - 1, KEPT)}
    return [rows[at] for at in sorted(kept | {0, len(rows) - 1})]
