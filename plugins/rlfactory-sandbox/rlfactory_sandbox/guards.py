"""Guards that a process enables for itself before it runs a model's code or SQL, and those that this platform lacks.

They stop accidents, and what a policy finds by trying during training. They do not stop an attacker, because the code
runs as the same user and on the same kernel as everything else.
"""

from __future__ import annotations

import contextlib
import glob
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

try:
    import ctypes

    from . import landlock, seccomp
except ImportError:  # without ctypes there are no guards, but the interpreter works
    ctypes = None  # type: ignore[assignment]

__all__ = ["Confinement", "die_with_parent", "enable", "python_files"]

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CAPABILITY_VERSION_3 = 0x20080522
# Besides Python: shared libraries, time zones, and files that libraries such as numpy read.
_SYSTEM = (
    "/usr", "/lib", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/dev/urandom",
    "/dev/random", "/dev/zero", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat",
    "/proc/sys/vm/overcommit_memory", "/sys/devices/system/cpu", "/sys/fs/cgroup",
)  # fmt: skip
_CONNECTING = (
    "/etc/hosts", "/etc/host.conf", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services",
    "/etc/passwd", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/run/systemd/resolve",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a process may use and reach."""

    memory: int  # bytes of address space
    file: int  # bytes of a file
    open_files: int
    readable: Sequence[str] = ()  # files and folders, besides Python and the system's libraries
    connects: bool = False  # to servers; then it can read what names and certificates need too
    packages: Sequence[str] | None = None  # files and folders of installed packages that it may read; None: all


def enable(confinement: Confinement, own: str) -> dict[str, str]:
    """Confine this process irreversibly; ``own`` is the only folder that it may write to.

    Returns the guards that this platform lacks, each with its reason.
    """
    steps: tuple[tuple[tuple[str, ...], Callable[[], None]], ...] = (
        (("processes",), _give_up_privileges),
        (("files",), lambda: _restrict_files(own, confinement)),
        (("processes", "network"), lambda: seccomp.install(_libc(), os.getpid(), connects=confinement.connects)),
        (("memory",), lambda: _limit_memory(confinement.memory)),
    )
    missing: dict[str, str] = {}
    for guards, step in steps:
        try:
            step()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            missing.update(dict.fromkeys(guards, reason))
    if "processes" in missing:
        _limit(resource.RLIMIT_NPROC, 0)  # at least a user other than root can start no processes and threads then
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, confinement.file)
    _limit(resource.RLIMIT_NOFILE, confinement.open_files)
    return missing


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, if it supports that."""
    with contextlib.suppress(OSError):
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _limit(kind: int, value: int) -> None:
    """Set the soft and the hard limit; a lower existing limit stays."""
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _limit_memory(limit: int) -> None:
    if sys.platform == "darwin":
        raise OSError("macOS does not limit a process's memory")
    _limit(resource.RLIMIT_AS, limit)


def _give_up_privileges() -> None:
    """Drop root's capabilities, with which the process could raise its limits again."""
    libc = _libc()
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "privileges cannot be given up")
    none = struct.pack("6I", *(0,) * 6)  # effective, permitted and inheritable, twice 32 bits
    if libc.capset(struct.pack("Ii", _CAPABILITY_VERSION_3, 0), none):
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")


def _restrict_files(own: str, confinement: Confinement) -> None:
    connecting = _CONNECTING if confinement.connects else ()
    readable = landlock.reading(("/proc/self", *confinement.readable, *connecting))
    packages = None if confinement.packages is None else tuple(confinement.packages)
    landlock.restrict(_libc(), own, (*python_files(packages), *readable))


@cache
def python_files(packages: tuple[str, ...] | None) -> Sequence[landlock.Rule]:
    """The rules for Python and the system's libraries. A process may ask for them before it forks many others."""
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    prefixes = sorted({sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix})
    hidden: set[str] = set()
    if packages is not None:
        hidden = {folder for prefix in prefixes for folder in _package_folders(prefix)}
        prefixes = [os.path.join(prefix, lib) for prefix in prefixes for lib in ("lib", "lib64")]
    return tuple(landlock.reading([*_SYSTEM, *filter(None, libraries), *prefixes, *(packages or ())], hidden))


def _package_folders(prefix: str) -> Iterator[str]:
    for lib, kind in product(("lib", "lib64", "local/lib"), ("site-packages", "dist-packages")):
        yield from map(os.path.realpath, glob.iglob(os.path.join(prefix, lib, "python3*", kind)))


def _libc() -> ctypes.CDLL:
    if sys.platform != "linux":
        raise OSError(f"it needs Linux, not {sys.platform}")
    if ctypes is None:
        raise OSError("this Python was built without ctypes")
    return ctypes.CDLL(None, use_errno=True)
