"""What a process takes from itself before it runs a model's code, and which of it this platform does not allow.

It is a guard against accidents and against what a policy in training finds out by trying. It is no jail for an
adversary: the code runs under the same user and the same kernel as everything else.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable, Mapping, Sequence

try:
    import ctypes

    from . import landlock, seccomp
except ImportError:  # a Python that was built without it has no guards, and still an interpreter
    ctypes = None  # type: ignore[assignment]

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CAPABILITY_VERSION_3 = 0x20080522
# Beside Python's own: shared libraries, time zones, and what libraries such as numpy look at.
_SYSTEM = (
    "/usr", "/lib", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/dev/urandom",
    "/dev/random", "/dev/zero", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat",
    "/proc/sys/vm/overcommit_memory", "/sys/devices/system/cpu",
)  # fmt: skip


def main() -> None:
    """Put all of them up, with the limits that are given as the first argument, and write what is missing."""
    sys.stdout.write(json.dumps(put_up(json.loads(sys.argv[1]), os.getcwd(), ())))


def put_up(limits: Mapping[str, int], own: str, readable: Sequence[str]) -> dict[str, str]:
    """Limit and confine this process, for good; returns what could not be, as guard -> reason.

    Args:
        limits: ``memory`` and ``file`` in bytes, ``open_files``.
        own: the only directory that may be written to.
        readable: what may be read, beside Python and the system's libraries.
    """
    steps: tuple[tuple[tuple[str, ...], Callable[[], None]], ...] = (
        (("processes",), _give_up_privileges),
        (("files",), lambda: _restrict_files(own, readable)),
        (("processes", "network"), _filter_calls),
        (("memory",), lambda: _limit_memory(limits["memory"])),
    )
    missing: dict[str, str] = {}
    for guards, step in steps:
        try:
            step()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            missing.update(dict.fromkeys(guards, reason))
    if "processes" in missing:
        _limit(resource.RLIMIT_NPROC, 0)  # keeps at least a user other than root from new ones, and from threads
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, limits["file"])
    _limit(resource.RLIMIT_NOFILE, limits["open_files"])
    return missing


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, where it does that."""
    with contextlib.suppress(OSError):
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _limit(kind: int, value: int) -> None:
    """Soft and hard; a lower limit that holds already stays."""
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _limit_memory(limit: int) -> None:
    if sys.platform == "darwin":
        raise OSError("macOS does not limit a process's memory")
    _limit(resource.RLIMIT_AS, limit)


def _give_up_privileges() -> None:
    """Root without its capabilities is a user like others; with them it could raise its limits again."""
    libc = _libc()
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "privileges cannot be given up")
    none = struct.pack("6I", *(0,) * 6)  # effective, permitted and inheritable, twice 32 bits
    if libc.capset(struct.pack("Ii", _CAPABILITY_VERSION_3, 0), none):
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")


def _restrict_files(own: str, readable: Sequence[str]) -> None:
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    python = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    landlock.restrict(_libc(), own, [*_SYSTEM, *filter(None, libraries), *sorted(python), *readable])


def _filter_calls() -> None:
    seccomp.install(_libc(), os.getpid())


def _libc() -> ctypes.CDLL:
    if sys.platform != "linux":
        raise OSError(f"it needs Linux, not {sys.platform}")
    if ctypes is None:
        raise OSError("this Python was built without ctypes")
    return ctypes.CDLL(None, use_errno=True)
