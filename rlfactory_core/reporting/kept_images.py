"""The images that a run keeps, and their addresses on a page.

A file is shown only if rlfactory wrote it: its name is the hash of its content, and it is a PNG file.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

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
    address: str  # for the page


@dataclass(frozen=True, slots=True)
class KeptImages:
    """The images of one run, for its pages.

    Args:
        folder: the run's.
        address: gives the address of the image with this hash; None: the page does not show it.
    """

    folder: RunFolder
    address: Callable[[str], str | None]

    def named(self, text: str) -> list[KeptImage]:
        """The images that a text names, in this order, each once."""
        return self._kept(match[3] for match in NAME.finditer(text))

    def given(self, stored: StoredTrajectory, index: int) -> list[KeptImage]:
        """The images that the model sees before a turn, except those in the results of the previous turn."""
        turn, text = stored.trajectory.turns[index], stored.texts[index]
        results = stored.trajectory.turns[index - 1].results if index else ()
        shown = {match[3] for result in results for match in NAME.finditer(result.content)}
        heard = [message.content for message in stored.trajectory.sample.messages] if index == 0 else []
        names = [match[3] for each in (*heard, text.context) for match in NAME.finditer(each)]
        return self._kept(name for name in (*turn.images, *names) if name not in shown)

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
        address = self.address(name)
        if address is None:
            return None
        width, height = (int.from_bytes(header[at : at + 4], "big") for at in (16, 20))
        return KeptImage(name, width, height, address)


class Embedded:
    """Addresses that are the images themselves, for a page that is one file.

    Args:
        folder: the run's.
        max_bytes: of all images together, before base64; an image that exceeds it is left out.
    """

    def __init__(self, folder: RunFolder, max_bytes: int) -> None:
        self._folder = folder
        self._left = max_bytes
        self.left_out = 0
        """How often an image was left out."""

    def __call__(self, name: str) -> str | None:
        try:
            data = read_image(self._folder, name)
        except UsageError:
            return None
        if len(data) > self._left:
            self.left_out += 1
            return None
        self._left -= len(data)
        return f"data:image/png;base64,{b64encode(data).decode()}"


def read_image(folder: RunFolder, name: str) -> bytes:
    """The PNG file of the run's image with this hash.

    Raises:
        UsageError: there is none, or it has been changed.
    """
    path = _path(folder, name)
    if path is None:
        raise UsageError(f"{folder.name} has no image called '{name}'.")
    data = path.read_bytes()
    if not data.startswith(PNG) or digest([data])[: len(name)] != name:
        raise UsageError(f"{path} is not the image that the run has kept: its content or its name was changed.")
    return data


def _path(folder: RunFolder, name: str) -> Path | None:
    """The file of an image, if it is one of the run's own folder."""
    path = folder.images / f"{name}.png"
    return path if _DIGEST.fullmatch(name) and path.is_file() and not path.is_symlink() else None
