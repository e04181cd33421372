"""Writing a new plugin's files, all or none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from rlfactory_core.errors import UsageError


def write_project(folder: Path, files: Mapping[str, str]) -> None:
    """Make the folder with its files.

    Raises:
        UsageError: something is there already, which stays as it is, or it cannot be written.
    """
    _refuse_existing(folder)
    try:
        folder.mkdir()
        try:
            for path, text in files.items():
                place = folder / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    except OSError as error:
        raise _unwritable(folder, error) from error


def write_file(path: Path, text: str) -> None:
    """Make the one file; raises as `write_project`."""
    _refuse_existing(path)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise _unwritable(path, error) from error


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise UsageError(f"{path} is there already, and stays as it is. Choose another name, or move it away.")


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot make {path}: {error.strerror or error}. Choose a folder that can be written to.")
