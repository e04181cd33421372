"""Scratch directories: measure and remove them, whatever the code has left in them."""

from __future__ import annotations

import errno
import os
import stat
from uuid import uuid4

_BLOCK = 512  # bytes, the unit of st_blocks on every system


def exceeds(folder: str, max_bytes: int, max_entries: int) -> bool:
    """Whether a directory exceeds a limit, while it may be written to. Links are not followed."""
    total = entries = 0
    folders = [folder]
    while folders:
        here = folders.pop()
        try:
            paths = [os.path.join(here, name) for name in os.listdir(here)]
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return True  # nested so deep that it cannot be measured
            continue  # moved meanwhile, or without permissions and so without content
        entries += len(paths)
        for path in paths:
            found = _status(path)
            total += found.st_blocks * _BLOCK if found else 0
            if total > max_bytes or entries > max_entries:
                return True
            if found is None or stat.S_ISDIR(found.st_mode):
                folders.append(path)
    return False


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def remove(folder: str) -> None:
    """Remove a directory that no process writes to any more.

    ``shutil.rmtree`` recurses, and fails on directories nested a thousand deep or without permissions. Here each
    directory's subdirectories are moved up first, so that no path becomes long.
    """
    os.chmod(folder, 0o700)
    while names := os.listdir(folder):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                _empty_into(path, folder)
                os.rmdir(path)
            else:
                os.unlink(path)
    os.rmdir(folder)


def _empty_into(path: str, folder: str) -> None:
    os.chmod(path, 0o700)
    for name in os.listdir(path):
        inner = os.path.join(path, name)
        if os.path.isdir(inner) and not os.path.islink(inner):
            os.chmod(inner, 0o700)
            os.rename(inner, os.path.join(folder, uuid4().hex))
        else:
            os.unlink(inner)
