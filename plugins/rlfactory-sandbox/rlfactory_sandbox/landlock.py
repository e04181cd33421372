"""The guard of files: the process can read only Python and the system's libraries, and write only its directory.

It uses the Linux kernel's Landlock, which needs no privileges (`landlock(7)`). Landlock also denies access to the
memory and environment of processes outside.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Collection, Iterable, Iterator

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_ON_FILES = (1 << 0) | _WRITE_FILE | _READ_FILE | (1 << 14) | (1 << 15)  # execute, truncate and ioctl too
_EXECUTE = 1 << 0
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # ABI -> all rights that it knows
Rule = tuple[str, int]
"""An existing path, and the rights to it and all below it."""

_TRUNCATES = 3  # the first ABI that guards against truncation


def restrict(libc: ctypes.CDLL, own: str, rules: Iterable[Rule]) -> None:
    """Restrict this process irreversibly to ``own`` (all but execution) and what the rules allow.

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
        for path, rights in rules:
            _allow(libc, ruleset, path, rights)
        _call(libc, _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    if version < _TRUNCATES:
        raise OSError(errno.ENOSYS, "this kernel's Landlock lets files be truncated; Linux 6.2 has a better one")


def reading(readable: Iterable[str], hidden: Collection[str] = ()) -> Iterator[Rule]:
    """The rules for reading files and directories; missing ones are ignored.

    A rule holds for all below its path, so a directory with a hidden one below is allowed entry by entry.

    Args:
        hidden: directories whose files cannot be read, even below one that is readable. Only names are seen there, and
            what is itself in ``readable``.
    """
    for path in map(os.path.realpath, readable):
        if not os.path.exists(path):
            continue
        below = os.path.join(path, "")
        if path in hidden or not any(each.startswith(below) for each in hidden):
            yield path, _READ_FILE | _READ_DIR
            continue
        yield path, _READ_DIR
        with os.scandir(path) as entries:
            # A link is followed when its target is opened, which needs a rule of its own.
            shown = [entry.path for entry in entries if entry.path not in hidden and not entry.is_symlink()]
        yield from reading(shown, hidden)


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
