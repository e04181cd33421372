"""A folder of databases in the layout that Spider and BIRD share: ``<id>/<id>.sqlite``."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from rlfactory_core.errors import UsageError, nearest
from rlfactory_nl2sql.databases.reference import DatabaseRef, parse_reference

_DEEPEST = 3  # levels below the given folder: BIRD's train/train_databases/<id>


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
        """The database with that id.

        Raises:
            UsageError: there is none or more than one.
        """
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
