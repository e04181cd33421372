"""Images in conversations: a message's text holds the name of an image, and the cache holds its file.

A name, such as ``[image 640x480 png 3f2a9c1b5d0e]``, is what a text model reads. It goes through tools, caches and
files like any text. A model with vision sees the image in its place.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

from rlfactory_core.cache import cache_root, digest, write_atomically
from rlfactory_core.errors import DataError, MissingExtraError
from rlfactory_core.utils.text import to_text

MAX_PIXELS, MAX_BYTES, MAX_IMAGES = 1 << 24, 20 << 20, 16  # of an image, of its file, in one result
_PNG = b"\x89PNG\r\n\x1a\n"
_NAME = re.compile(r"\[image (\d{1,5})x(\d{1,5}) png ([0-9a-f]{12})\]")
_DAY_S, _KEPT_S = 86_400.0, 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Image:
    """An image whose PNG file is in the cache, for a week after its last use; ``str(image)`` is its name."""

    width: int  # pixels
    height: int
    digest: str  # of the file

    @classmethod
    def of(cls, source: Any) -> Image:
        """Keep an image: a ``PIL.Image.Image``, or the bytes of a file in PNG or in any format that Pillow reads.

        Raises:
            DataError: it cannot be read, or has too many pixels or bytes.
            MissingExtraError: it is no PNG file, and Pillow is not installed.
        """
        data, width, height = _decoded(source)
        image = cls(width, height, digest([data])[:12])
        if not image.path.is_file():
            write_atomically(image.path, data)
            _forget_old(image.path.parent)
        return image

    @property
    def path(self) -> Path:
        return cache_root() / "images" / f"{self.digest}.png"

    def read(self) -> bytes:
        """The PNG file."""
        with suppress(OSError):
            os.utime(self.path)
        return self.path.read_bytes()

    def __str__(self) -> str:
        return f"[image {self.width}x{self.height} png {self.digest}]"


def images_in(text: str) -> Iterator[Image]:
    """The images that a text names, in its order; names without a file in the cache are left out."""
    for match in _NAME.finditer(text):
        image = Image(int(match[1]), int(match[2]), match[3])
        if image.path.is_file():
            yield image


def content_text(value: object) -> str:
    """As `to_text`, with the names of images: of PNG bytes, a Pillow image or an `Image`, or of a list's items, which
    then have a line each. Raises as `Image.of`, and `DataError` for more than `MAX_IMAGES`."""
    if isinstance(value, (list, tuple)) and (count := sum(map(_is_image, value))):
        if count > MAX_IMAGES:
            raise DataError(f"A result has {count} images; at most {MAX_IMAGES} are allowed. Return fewer.")
        return "\n".join(map(content_text, value))
    if _is_image(value):
        return str(value if isinstance(value, Image) else Image.of(value))
    return to_text(value)


def _is_image(value: object) -> bool:
    pillow = sys.modules.get("PIL.Image")
    known = (Image,) if pillow is None else (Image, pillow.Image)
    return isinstance(value, known) or (isinstance(value, bytes) and value.startswith(_PNG))


def _decoded(source: Any) -> tuple[bytes, int, int]:
    """The PNG file, its width and height. Pillow also finds out whether all of it can be read."""
    data = source if isinstance(source, bytes) else b""
    if len(data) > MAX_BYTES:
        raise DataError(f"An image has {len(data):,} bytes; at most {MAX_BYTES:,} are allowed. Make it smaller.")
    if find_spec("PIL") is None:
        if not data.startswith(_PNG) or len(data) < 24:
            raise MissingExtraError("An image that is no PNG file needs Pillow: pip install 'rlfactory-core[images]'")
        width, height = struct.unpack(">II", data[16:24])  # of the header chunk
        return data, *_checked(width, height)
    import PIL.Image

    try:
        with PIL.Image.open(BytesIO(data)) if data else source.copy() as image:
            width, height = _checked(*image.size)
            if data.startswith(_PNG):
                image.load()
                return data, width, height
            file = BytesIO()
            image.convert("RGBA" if "A" in image.getbands() else "RGB").save(file, "png")
            return file.getvalue(), width, height
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise any error
        raise DataError(f"An image cannot be read ({error}). Expected a whole file in PNG or JPEG.") from error


def _checked(width: int, height: int) -> tuple[int, int]:
    if not 0 < width * height <= MAX_PIXELS:
        raise DataError(f"An image has {width} x {height} pixels; at most {MAX_PIXELS:,} are allowed. Make it smaller.")
    return width, height


def _forget_old(folder: Path) -> None:
    """Once a day, remove the images that were not used for a week."""
    marker, now = folder / ".swept", time.time()
    with suppress(OSError):
        if marker.exists() and now - marker.stat().st_mtime < _DAY_S:
            return
        marker.touch()
        for path in folder.glob("*.png"):
            if now - path.stat().st_mtime > _KEPT_S:
                path.unlink(missing_ok=True)
