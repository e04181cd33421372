"""Images in conversations: a text holds the name of an image, and the cache holds its file.

A name, such as ``[image 640x480 png 3f2a9c1b5d0e]``, is what a text model reads. It goes through tools, caches and
files like any text. The package ``rlfactory-vision`` makes images and names, and has models that see them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from rlfactory_core.cache import cache_root
from rlfactory_core.errors import MissingExtraError
from rlfactory_core.utils.text import to_text

PNG = b"\x89PNG\r\n\x1a\n"  # with which a file in PNG begins
NAME = re.compile(r"\[image (\d{1,5})x(\d{1,5}) png ([0-9a-f]{12})\]")


def image_path(digest: str) -> Path:
    """The file of the image with this hash, which need not exist."""
    return cache_root() / "images" / f"{digest}.png"


def named_files(text: str) -> set[Path]:
    """The files of the images that a text names."""
    return {path for match in NAME.finditer(text) if (path := image_path(match[3])).is_file()}


def content_text(value: object) -> str:
    """As `to_text`; the bytes of a PNG file and Pillow's images become their names, in a list each on its own line.

    Raises:
        DataError: an image cannot be read, or is too large.
        MissingExtraError: there is an image, and the package for images is not installed.
    """
    if isinstance(value, str):
        return str.__str__(value)  # without the methods of a subclass
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    return str(_images().as_text(items)) if any(map(_is_image, items)) else to_text(value)


def image_text(file: bytes) -> str:
    """The name of an image, of any format; raises as `content_text`."""
    return str(_images().Image.of(file))


def pictures(names: Iterable[str]) -> list[Any]:
    """The images with these hashes as Pillow's, in RGB.

    Raises:
        ModelError: one is gone from the cache.
    """
    return [_images().picture(name) for name in names]


def sees_images(config: object) -> bool:
    """Whether a model's configuration is that of a vision-language model whose images are runs of one token.

    Args:
        config: of transformers; some families have their fields under further names, which only the object knows.
    """
    return hasattr(config, "vision_config") and hasattr(config, "image_token_id")


def _images() -> ModuleType:
    try:
        return import_module("rlfactory_vision.images")
    except ModuleNotFoundError as error:
        raise MissingExtraError("Images need a package: python -m pip install rlfactory-vision") from error


def _is_image(value: object) -> bool:
    pillow, vision = sys.modules.get("PIL.Image"), sys.modules.get("rlfactory_vision.images")
    known = tuple(module.Image for module in (pillow, vision) if module is not None)
    return isinstance(value, known) or (isinstance(value, bytes) and value.startswith(PNG))
