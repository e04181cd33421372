"""A run's ``metrics.jsonl`` as it grows: each line is read once, and a long run keeps only some of its rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

Row = dict[str, float | None]
Item = TypeVar("Item")

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
            file.seek(self._offset)
            text = file.read()
        end = text.rfind(b"\n") + 1  # a line that is being written has none yet
        lines = text[:end].splitlines()
        added = filter(None, map(_parsed, _thinned(lines, [_EVALUATED in line for line in lines])))
        rows = [*self.rows, *added]
        self.rows = _thinned(rows, [any(name.startswith("eval/") for name in row) for row in rows])
        self._offset += end
        return (len(self.rows), self._offset) != before


def _parsed(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:  # damaged: `rlfactory trace` says which line
        return None
    return row if isinstance(row, dict) else None


def spread(first: int, last: int, count: int) -> list[int]:
    """Up to ``count`` whole numbers from ``first`` to ``last``, at equal distances."""
    if last - first < count:
        return list(range(first, last + 1))
    return [first + (last - first) * at // (count - 1) for at in range(count)]


def _thinned(items: list[Item], evaluated: Sequence[bool]) -> list[Item]:
    """At most `KEPT` of the items with results of an evaluation and of the others; the ends always."""
    if len(items) <= 2 * KEPT:
        return items
    kept = {0, len(items) - 1}
    for kind in (True, False):
        places = [at for at, each in enumerate(evaluated) if each is kind]
        kept |= {places[at] for at in spread(0, len(places) - 1, KEPT)}
    return [items[at] for at in sorted(kept)]
