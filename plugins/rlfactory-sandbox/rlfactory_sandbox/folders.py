"""Removes the folder of a process that has ended, whatever its code has left there."""

from __future__ import annotations

import os
from uuid import uuid4


def remove(folder: str) -> None:
    """Remove a directory that no process writes to any more.

    ``shutil.rmtree`` recurses, and fails on directories nested a thousand deep or without permissions. Here the content
    of each directory is moved up first, so that no path becomes long.
    """
    os.chmod(folder, 0o700)
    while names := os.listdir(folder):
        for path in (os.path.join(folder, name) for name in names):
            if not os.path.isdir(path) or os.path.islink(path):
                os.unlink(path)
                continue
            os.chmod(path, 0o700)
            for inner in list(os.scandir(path)):
                if inner.is_dir(follow_symlinks=False):
                    os.chmod(inner.path, 0o700)  # else it cannot be moved
                os.rename(inner.path, os.path.join(folder, uuid4().hex))
            os.rmdir(path)
    os.rmdir(folder)
