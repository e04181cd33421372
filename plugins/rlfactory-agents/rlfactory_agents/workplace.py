"""The folder in which a program runs: what it writes there is its own, and other attempts do not see it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

_PATHS = ("PYTHONPATH", "NODE_PATH", "VIRTUAL_ENV")


class Workplace:
    """A new folder with a link to each entry of the folder in which rlfactory was started, until `remove`.

    Relative paths in the command, in the program and in the variables so mean what they meant there.
    """

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="rlfactory-agent-", ignore_cleanup_errors=True)
        self.folder = Path(self._place.name, "work")
        self.folder.mkdir()
        for entry in os.scandir():
            (self.folder / entry.name).symlink_to(Path(entry.path).absolute())

    def file(self, name: str, text: str) -> Path:
        """A new file beside the folder."""
        path = Path(self._place.name, name)
        path.write_text(text, encoding="utf-8", errors="replace")
        return path

    def remove(self) -> None:
        """Remove the folder and what it holds, but nothing to which it links."""
        self._place.cleanup()


def absolute_words(words: Sequence[str]) -> list[str]:
    """The words of a command; those that lead to a place above the folder are absolute."""
    return [os.path.abspath(word) if word.startswith("..") and os.path.exists(word) else word for word in words]


def absolute_paths(name: str, value: str) -> str:
    """The value of a variable; folders of a search path are absolute."""
    return os.pathsep.join(map(os.path.abspath, value.split(os.pathsep))) if name in _PATHS and value else value
