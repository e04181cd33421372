"""What a worker may reach: the folders of the databases that its jobs name, or servers, and nothing else."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from rlfactory_core.workers.guards import enable
from rlfactory_nl2sql.databases.reference import DatabaseRef, variables_of

_MIB = 1 << 20
_FILE_BYTES = 256 * _MIB  # SQLite sorts large results in unnamed files: in memory no deadline would stop it
_OPEN_FILES = 256
# The only variables of this process that a worker inherits. Others may hold secrets.
_INHERITED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ")


@dataclass(frozen=True, slots=True)
class Access:
    """Folders that may be read, and whether servers may be connected to."""

    folders: frozenset[str] = frozenset()
    connects: bool = False

    def __or__(self, other: Access) -> Access:
        return Access(self.folders | other.folders, self.connects or other.connects)

    def enforce(self, memory_mb: int) -> dict[str, str]:
        """Confine this process to it and its directory for good, with this memory beyond what Python needs.

        Returns the missing guards, with reasons.
        """
        limits = {"memory": _address_space() + memory_mb * _MIB, "file": _FILE_BYTES, "open_files": _OPEN_FILES}
        return enable(limits, os.getcwd(), [*filter(None, sys.path), *self.folders], connects=self.connects)


def needed(job: Any) -> Access:
    """What a job needs: its ``ref``, if it has one, names a database."""
    ref = getattr(job, "ref", None)
    if not isinstance(ref, DatabaseRef):
        return Access()
    if ref.kind in ("sqlite", "duckdb"):
        return Access(folders=frozenset({os.path.dirname(ref.location)}))
    return Access(connects=True)


def secrets_of(job: Any) -> dict[str, str]:
    """The variables that the URL of a job's database names, as far as they are set."""
    ref = getattr(job, "ref", None)
    names = variables_of(ref) if isinstance(ref, DatabaseRef) else ()
    return {name: os.environ[name] for name in names if name in os.environ}


def environment(folder: str) -> dict[str, str]:
    """The environment variables of workers, whose temporary files are in ``folder``."""
    return {
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": folder,
        "TMPDIR": folder,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",  # all workers make the same varied databases
        "MALLOC_ARENA_MAX": "1",  # DuckDB's threads do not take 64 MB of address space each
    }


def _address_space() -> int:
    """The size of this process's address space in bytes, or an estimate."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 256 * _MIB
