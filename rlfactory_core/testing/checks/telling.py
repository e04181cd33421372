"""An author's exception as evidence."""

from __future__ import annotations

import traceback
from pathlib import Path

import rlfactory_core

_CORE = str(Path(rlfactory_core.__file__).parent)
_FRAMES = 3  # of the author's own code that are shown


def told(error: BaseException) -> str:
    """It in words, with the lines of the author's own code that it came through."""
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_CORE, "<")) and not _is_library(frame.filename)
    ]
    lines = (f"\n{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[-_FRAMES:])
    return words + "".join(lines)


def _is_library(filename: str) -> bool:
    parts = Path(filename).parts
    return "site-packages" in parts or any(part.startswith("python3.") for part in parts[:-1])
