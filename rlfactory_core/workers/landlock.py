"""The guard of files: the process can read only Python and the system's libraries, and write only its directory.

It uses the Linux kernel's Landlock, which needs no privileges (`landlock(7)`). Landlock also denies access to the
memory and environment of processes outside.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_ON_FILES = (1 << 0) | _WRITE_FILE | _READ_FILE | (1 << 14) | (1 << 15)  # execute, truncate and ioctl too
_EXECUTE = 1 << 0
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # ABI -> all rights that it knows
_TRUNCATES = 3  # the first ABI that guards against truncation


def restrict(libc: ctypes.CDLL, own: str, readable: Sequence[str]) -> None:
    """Restrict this process irreversibly to ``own`` (all but execution) and ``readable`` (reading).

    Args:
        own, readable: files or directories; missing ones in ``readable`` are ignored.

    Raises:
        OSError: the kernel has no Landlock, or an old one that guards only in part; that part is enabled.
    """
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    if version < 1:
        raise OSError(ctypes.get_errno() or errno.ENOSYS, "this kernel has no Landlock")
    handled = next(rights for abi, rights in reversed(_RIGHTS.items()) if abi <= version)
    ruleset = _call(libc, _CREATE_RULESET, struct.pack("Q", handled), ctypes.c_size_t(8), 0)
    try:
        _allow(libc, ruleset, own, handled & ~_EXECUTE)
        _allow(libc, ruleset, "/dev/null", handled & (_READ_FILE | _WRITE_FILE))
        for path in readable:
            if os.path.exists(path):
                _allow(libc, ruleset, path, _READ_FILE | _READ_DIR)
        _call(libc, _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    if version < _TRUNCATES:
        raise OSError(errno.ENOSYS, "this kernel's Landlock lets files be truncated; Linux 6.2 has a better one")


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            rights &= _ON_FILES
        _call(libc, _ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def _call(libc: ctypes.CDLL, *arguments: object) -> int:
    result: int = libc.syscall(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "Landlock refused a rule")
    return result
