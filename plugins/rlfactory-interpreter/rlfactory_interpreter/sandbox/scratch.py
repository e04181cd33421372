"""Measures scratch directories, whatever the code has left in them."""

from __future__ import annotations

import errno
import os
import stat

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
