"""Questions and databases in the layouts of Spider and BIRD.

Questions are a JSON array, or the same rows as JSON lines. Spider (https://yale-lily.github.io/spider): ``db_id``,
``question``, ``query``, and parses of both, which are left out. BIRD (https://bird-bench.github.io): ``db_id``,
``question``, ``evidence``, ``SQL``, in some of its files also ``question_id`` and ``difficulty``. The
evidence is a hint that the annotators had, and becomes a part of the prompt. Databases are ``<id>/<id>.sqlite``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rlfactory_core import Sample
from rlfactory_core.errors import DataError, UsageError, nearest
from rlfactory_nl2sql.databases.reference import DatabaseRef, parse_reference

Row = Mapping[str, Any]
_DEEPEST = 3  # levels below the given folder: BIRD's train/train_databases/<id>


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of one kind of rows, besides ``db_id`` and ``question``."""

    query: str
    id: str = ""
    evidence: str = ""
    difficulty: str = ""  # the evaluation's slice


SPIDER = Layout(query="query")
BIRD = Layout(query="SQL", id="question_id", evidence="evidence", difficulty="difficulty")


def load_questions(path: Path, split: str) -> list[Sample] | None:
    """The samples of a file in one of the layouts; None if it has neither, so that the core may read it.

    ``metadata["database"]`` is the row's ``db_id`` or ``database``, if it has one.

    Raises:
        DataError: an array that is not JSON or has other rows, or an incomplete row.
    """
    if path.suffix not in (".json", ".jsonl", ".ndjson") or not path.is_file():
        return None
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = json.loads(text) if text.lstrip().startswith("[") else _lines(text)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as JSON: {error}.") from error
    if rows is None:
        return None
    places = [f"{path}, row {number} (from 0)" for number in range(len(rows))]
    for row, place in zip(rows, places, strict=True):
        if not isinstance(row, dict):
            raise DataError(f"{place} is a JSON {type(row).__name__}; expected an object.")
    layout = _layout(rows[0] if rows else {})
    if layout is None:
        raise DataError(
            f"{path} is a JSON array of rows with {', '.join(rows[0]) if rows else 'nothing'}; expected question and "
            "query (Spider) or question and SQL (BIRD), and db_id. Rows with other columns can be given one a line "
            "(.jsonl) or as parquet: name theirs with data.columns.prompt=COLUMN data.columns.answer=COLUMN."
        )
    own = [str(row.get(layout.id)) for row in rows]
    names = own if len(set(own)) == len(rows) and layout.id in rows[0] else map(str, range(len(rows)))
    return [_sample(row, layout, name, place, split) for row, name, place in zip(rows, names, places, strict=True)]


def _lines(text: str) -> list[Any] | None:
    """The rows of JSON lines; None if the first has none of the layouts."""
    lines = [line for line in text.split("\n") if line.strip()]
    try:
        first = json.loads(lines[0]) if lines else None
    except ValueError:
        return None
    return [json.loads(line) for line in lines] if isinstance(first, dict) and _layout(first) else None


def _layout(row: Row) -> Layout | None:
    return next((layout for layout in (SPIDER, BIRD) if "question" in row and layout.query in row), None)


def _sample(row: Row, layout: Layout, name: str, place: str, split: str) -> Sample:
    question, query = (_text(row, key, place) for key in ("question", layout.query))
    database = next((key for key in ("db_id", "database") if key in row), None)
    metadata = {"database": _text(row, database, place)} if database else {}
    evidence = str(row.get(layout.evidence) or "").strip()
    return Sample(
        id=name,
        prompt=f"{question}\n\nEvidence: {evidence}" if evidence else question,
        answer=query,
        metadata=metadata,
        split=split,
        slice=str(row.get(layout.difficulty) or ""),
    )


def _text(row: Row, key: str, place: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        found = "is not there" if key not in row else f"is {str(value)[:80]!r}"
        raise DataError(f"{place}: {key!r} {found}; expected a text.")
    return value.strip()


class DatabaseFolder:
    """Finds databases by id in a folder, or in its subfolders such as ``database`` or ``dev/dev_databases``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def files(self) -> dict[str, list[Path]]:
        """The database files by id; searched for once."""
        found: dict[str, list[Path]] = {}
        level = [self._path]
        for _ in range(_DEEPEST):
            below = sorted(folder for parent in level for folder in parent.iterdir() if folder.is_dir())
            level = []
            for folder in below:
                file = folder / f"{folder.name}.sqlite"
                if file.is_file():
                    found.setdefault(folder.name, []).append(file)
                else:
                    level.append(folder)
        return found

    def reference(self, name: str) -> DatabaseRef:
        """The database with that id; raises `UsageError` if there is none or more than one."""
        files = self.files.get(name, [])
        if len(files) == 1:
            return parse_reference(files[0])
        if files:
            raise UsageError(
                f"{self._path} holds several databases {name!r}: {', '.join(map(str, files))}. Name the folder that is "
                f"meant, such as --db {files[0].parent.parent}."
            )
        if not self.files:
            raise UsageError(f"{self._path} holds no databases; expected <id>/<id>.sqlite, as in Spider and BIRD.")
        raise UsageError(f"{self._path} holds no database {name!r}. {nearest(name, self.files)}")
