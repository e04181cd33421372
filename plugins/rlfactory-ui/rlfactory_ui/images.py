"""The images that a run keeps: where a page finds them, and which file is one.

A file is served only if rlfactory wrote it: its name is the hash of its content, and it is a PNG file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from rlfactory_core.cache import digest
from rlfactory_core.errors import UsageError
from rlfactory_core.images import NAME, PNG
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.trajectories import StoredTrajectory

_DIGEST = re.compile(r"[0-9a-f]{12}")
_HEADER = 24  # bytes of a PNG file, whose last eight are width and height


@dataclass(frozen=True, slots=True)
class KeptImage:
    """An image in a run's folder."""

    digest: str
    width: int  # pixels
    height: int
    address: str  # on this server


@dataclass(frozen=True, slots=True)
class KeptImages:
    """The images of one run, for its pages."""

    folder: RunFolder

    def named(self, text: str) -> list[KeptImage]:
        """Those that a text names, in its order, each once."""
        return self._kept(match[3] for match in NAME.finditer(text))

    def given(self, stored: StoredTrajectory, index: int) -> list[KeptImage]:
        """Those that the model was given before a turn, without those of the results of the turn before."""
        turn, text = stored.trajectory.turns[index], stored.texts[index]
        results = stored.trajectory.turns[index - 1].results if index else ()
        shown = {match[3] for result in results for match in NAME.finditer(result.content)}
        heard = [message.content for message in stored.trajectory.sample.messages] if index == 0 else []
        names = [match[3] for each in (*heard, text.context) for match in NAME.finditer(each)]
        return self._kept(name for name in (*turn.images, *names) if name not in shown)

    def read(self, name: str) -> bytes:
        """The PNG file of the image with this hash.

        Raises:
            UsageError: there is none, or it has been changed.
        """
        path = _path(self.folder, name)
        if path is None:
            raise UsageError(f"{self.folder.name} has no image called '{name}'.")
        data = path.read_bytes()
        if not data.startswith(PNG) or digest([data])[: len(name)] != name:
            raise UsageError(f"{path} is not the image that the run has kept: its content or its name was changed.")
        return data

    def _kept(self, names: Iterable[str]) -> list[KeptImage]:
        return [found for name in dict.fromkeys(names) if (found := self._image(name)) is not None]

    def _image(self, name: str) -> KeptImage | None:
        path = _path(self.folder, name)
        if path is None:
            return None
        with path.open("rb") as file:
            header = file.read(_HEADER)
        if len(header) < _HEADER or not header.startswith(PNG):
            return None
        width, height = (int.from_bytes(header[at : at + 4], "big") for at in (16, 20))
        return KeptImage(name, width, height, f"/runs/{quote(self.folder.name)}/images/{name}.png")


def _path(folder: RunFolder, name: str) -> Path | None:
    """The file of an image, if it is one of the run's own folder."""
    path = folder.images / f"{name}.png"
    return path if _DIGEST.fullmatch(name) and path.is_file() and not path.is_symlink() else None
