"""Images in conversations: a text holds the name of an image, and the cache holds its file.

A name, such as ``[image 640x480 png 3f2a9c1b5d0e]``, is what a text model reads. It goes through tools, caches and
files like any text. Images are read with Pillow, which ``rlfactory-vision`` installs.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from rlfactory_core.cache import cache_root, digest, write_atomically
from rlfactory_core.errors import DataError, MissingExtraError, ModelError
from rlfactory_core.utils.text import to_text

__all__ = ["MAX_BYTES", "MAX_IMAGES", "MAX_PIXELS", "Image", "images_in", "parts", "picture", "sees_images"]

PNG = b"\x89PNG\r\n\x1a\n"  # with which a file in PNG begins
NAME = re.compile(r"\[image (\d{1,5})x(\d{1,5}) png ([0-9a-f]{12})\]")
MAX_PIXELS = 1 << 24
"""The most pixels of an image."""
MAX_BYTES = 20 << 20
"""The most bytes of an image's file."""
MAX_IMAGES = 16
"""The most images in one result."""
_DAY_S, _KEPT_S = 86_400.0, 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Image:
    """An image whose PNG file is in the cache, for a week after its last use; ``str(image)`` is its name."""

    width: int  # pixels
    height: int
    digest: str  # of the file

    @classmethod
    def of(cls, source: Any) -> Image:
        """Keep an image: a ``PIL.Image.Image``, or the bytes of a file in PNG, JPEG or another format of Pillow's.

        Raises:
            DataError: it cannot be read, or has too many pixels or bytes.
            MissingExtraError: Pillow is not installed.
        """
        data, width, height = _decoded(source)
        image = cls(width, height, digest([data])[:12])
        if not image.path.is_file():
            write_atomically(image.path, data)
            _remove_old(image.path.parent)
        return image

    @property
    def path(self) -> Path:
        return image_path(self.digest)

    def read(self) -> bytes:
        """The PNG file."""
        with suppress(OSError):
            os.utime(self.path)
        return self.path.read_bytes()

    def __str__(self) -> str:
        return f"[image {self.width}x{self.height} png {self.digest}]"


def image_path(digest: str) -> Path:
    """The file of the image with this hash, which need not exist."""
    return cache_root() / "images" / f"{digest}.png"


def parts(text: str) -> Iterator[str | Image]:
    """The text, cut at the images that it names; names without a file in the cache are text."""
    end = 0
    for match in NAME.finditer(text):
        image = Image(int(match[1]), int(match[2]), match[3])
        if image.path.is_file():
            yield text[end : match.start()]
            yield image
            end = match.end()
    yield text[end:]


def images_in(text: str) -> list[Image]:
    """The images that a text names, in its order."""
    return [part for part in parts(text) if isinstance(part, Image)]


def picture(digest: str) -> Any:
    """The image of the cache with this hash as Pillow's, in RGB, as a model's processor takes it.

    Raises:
        ModelError: it is gone.
    """
    try:
        return _pillow().open(BytesIO(image_path(digest).read_bytes())).convert("RGB")
    except OSError as error:
        raise ModelError(f"The image {digest} is gone from the cache ({error}). Train with a new run.") from error


def content_text(value: object) -> str:
    """As `to_text`; the bytes of a PNG file and Pillow's images become their names, in a list each on its own line.

    Raises:
        DataError: an image cannot be read, or is too large; or there are more than `MAX_IMAGES`.
        MissingExtraError: there is an image, and Pillow is not installed.
    """
    if isinstance(value, str):
        return str.__str__(value)  # without the methods of a subclass
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    count = sum(isinstance(item, Image) or _is_source(item) for item in items)
    if not count:
        return to_text(value)
    if count > MAX_IMAGES:
        raise DataError(f"A result has {count} images; at most {MAX_IMAGES} are allowed. Return fewer.")
    images = (Image.of(item) if _is_source(item) else item for item in items)
    return "\n".join(str(item) if isinstance(item, Image) else to_text(item) for item in images)


def sees_images(config: object) -> bool:
    """Whether a model's configuration is that of a vision-language model whose images are runs of one token.

    Args:
        config: of transformers; some families have their fields under further names, which only the object knows.
    """
    return hasattr(config, "vision_config") and hasattr(config, "image_token_id")


def _pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ModuleNotFoundError as error:
        raise MissingExtraError("Images need a package: python -m pip install rlfactory-vision") from error


def _is_source(item: object) -> bool:
    pillow = sys.modules.get("PIL.Image")
    is_pillows = pillow is not None and isinstance(item, pillow.Image)
    return is_pillows or (isinstance(item, bytes) and item.startswith(PNG))


def _decoded(source: Any) -> tuple[bytes, int, int]:
    """The PNG file, its width and height; all of it was read once."""
    data = source if isinstance(source, bytes) else b""
    if len(data) > MAX_BYTES:
        raise DataError(f"An image has {len(data):,} bytes; at most {MAX_BYTES:,} are allowed. Make it smaller.")
    pillow = _pillow()
    try:
        with pillow.open(BytesIO(data)) if isinstance(source, bytes) else source.copy() as image:
            width, height = image.size
            if not 0 < width * height <= MAX_PIXELS:
                raise DataError(
                    f"An image has {width} x {height} pixels; at most {MAX_PIXELS:,} are allowed. Make it smaller."
                )
            if data.startswith(PNG):
                image.load()
                return data, width, height
            file = BytesIO()
            image.convert("RGBA" if "A" in image.getbands() else "RGB").save(file, "png")
            return file.getvalue(), width, height
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise any error
        raise DataError(f"An image cannot be read ({error}). Expected a whole file in PNG or JPEG.") from error


def _remove_old(folder: Path) -> None:
    """Once a day, remove the images that were not used for a week."""
    marker, now = folder / ".swept", time.time()
    with suppress(OSError):
        if marker.exists() and now - marker.stat().st_mtime < _DAY_S:
            return
        marker.touch()
        for path in folder.glob("*.png"):
            if now - path.stat().st_mtime > _KEPT_S:
                path.unlink(missing_ok=True)
