"""Questions and databases in the layouts of Spider and BIRD.

Questions are a JSON array, or the same rows as JSON lines. Spider (https://yale-lily.github.io/spider): ``db_id``,
``question``, ``query``, and parses of both, which are left out. BIRD (https://bird-bench.github.io): ``db_id``,
``question``, ``evidence``, ``SQL``, in some of its files also ``question_id`` and ``difficulty``. The
evidence is a hint that the annotators had, and becomes a part of the prompt. Databases are ``<id>/<id>.sqlite``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

from rlfactory_core import Sample
from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.tasks import DataColumns
from rlfactory_core.tasks.data import first_rows, load_samples
from rlfactory_nl2sql.databases.reference import DatabaseRef, parse_reference

SPIDER = DataColumns(prompt="question", answer="query", tools=None)
BIRD = DataColumns(id="question_id", prompt="question", answer="SQL", slice="difficulty", tools=None)
_DEEPEST = 3  # levels below the given folder: BIRD's train/train_databases/<id>


def load_questions(path: Path, split: str) -> list[Sample] | None:
    """The samples of a file in one of the layouts; None if it has neither.

    ``metadata["database"]`` is the row's ``db_id`` or ``database``, if it has one.

    Raises:
        DataError: the file is missing or unreadable, or a row is incomplete.
    """
    _, found = first_rows(path, 1)
    layout = next((each for each in (SPIDER, BIRD) if {each.prompt, each.answer} <= set(found)), None)
    return [_read(sample) for sample in load_samples(path, layout, split)] if layout else None


def _read(sample: Sample) -> Sample:
    row, prompt = sample.metadata, sample.prompt
    if isinstance(prompt, str):
        evidence = str(row.get("evidence") or "").strip()
        prompt = f"{prompt.strip()}\n\nEvidence: {evidence}" if evidence else prompt.strip()
    database = row.get("db_id", row.get("database"))
    return replace(sample, prompt=prompt, metadata={"database": str(database)} if database else {})


class DatabaseFolder:
    """Finds databases by id in a folder, or in its subfolders such as ``database`` or ``dev/dev_databases``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def files(self) -> dict[str, list[Path]]:
        """The database files by id; searched for once."""
        found: dict[str, list[Path]] = {}
        for level in range(_DEEPEST):
            for file in sorted(self._path.glob("*/" * level + "*/*.sqlite")):
                if file.stem == file.parent.name:
                    found.setdefault(file.stem, []).append(file)
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
