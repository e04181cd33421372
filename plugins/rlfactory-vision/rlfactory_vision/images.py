"""Images, whose files are in the cache, and the texts that name them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import PIL.Image

from rlfactory_core.cache import digest, write_atomically
from rlfactory_core.errors import DataError, ModelError
from rlfactory_core.images import NAME, PNG, image_path
from rlfactory_core.utils.text import to_text

MAX_PIXELS, MAX_BYTES, MAX_IMAGES = 1 << 24, 20 << 20, 16  # of an image, of its file, in one result
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
        """
        data, width, height = _decoded(source)
        image = cls(width, height, digest([data])[:12])
        if not image.path.is_file():
            write_atomically(image.path, data)
            _forget_old(image.path.parent)
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


def picture(name: str) -> PIL.Image.Image:
    """The image of the cache with this hash, in RGB, as a model's processor takes it.

    Raises:
        ModelError: it is gone.
    """
    try:
        return PIL.Image.open(BytesIO(image_path(name).read_bytes())).convert("RGB")
    except OSError as error:
        raise ModelError(f"The image {name} is gone from the cache ({error}). Train with a new run.") from error


def as_text(items: Sequence[Any]) -> str:
    """Texts, images and other data, each on a line of its own.

    Raises:
        DataError: as `Image.of`; or there are more than `MAX_IMAGES`.
    """
    texts = [str(Image.of(item)) if _is_source(item) else item for item in items]
    count = sum(isinstance(item, Image) or _is_source(item) for item in items)
    if count > MAX_IMAGES:
        raise DataError(f"A result has {count} images; at most {MAX_IMAGES} are allowed. Return fewer.")
    return "\n".join(str(text) if isinstance(text, Image) else to_text(text) for text in texts)


def _is_source(item: object) -> bool:
    return isinstance(item, PIL.Image.Image) or (isinstance(item, bytes) and item.startswith(PNG))


def _decoded(source: Any) -> tuple[bytes, int, int]:
    """The PNG file, its width and height; all of it was read once."""
    data = source if isinstance(source, bytes) else b""
    if len(data) > MAX_BYTES:
        raise DataError(f"An image has {len(data):,} bytes; at most {MAX_BYTES:,} are allowed. Make it smaller.")
    try:
        with PIL.Image.open(BytesIO(data)) if isinstance(source, bytes) else source.copy() as image:
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
