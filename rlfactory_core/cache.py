"""Builds folders once and uses them again: one folder for each content hash, written completely or not at all.

Several processes may build the same folder at once, such as data-parallel workers. Each builds in a temporary folder of
its own, and the first rename wins.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from rlfactory_core.errors import DataError

__all__ = ["build_once", "cache_root", "check_room", "digest", "file_digest", "write_atomically"]

_CHUNK = 1 << 20
_STALE_S = 86_400.0  # nothing is built for a day
_SETTLED_NS = 2_000_000_000  # a file younger than this may still change within one tick of the clock


def cache_root() -> Path:
    """``$RLFACTORY_CACHE``, else ``$XDG_CACHE_HOME/rlfactory``, else ``~/.cache/rlfactory``."""
    if own := os.environ.get("RLFACTORY_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlfactory"


def digest(parts: Iterable[str | bytes]) -> str:
    """A hash of the parts and their boundaries, as 32 hexadecimal digits."""
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


def file_digest(path: Path, root: Path) -> str:
    """The content hash of a file, 32 hexadecimal digits.

    It is remembered under ``root`` by path, size and modification time, so that a large corpus is read once and not at
    every start.
    """
    stat = path.stat()
    seen = {"path": str(path.resolve()), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    memo = root / "digests" / f"{digest([str(path.resolve())])}.json"
    try:
        known = json.loads(memo.read_text())
        if {key: known[key] for key in seen} == seen:
            return str(known["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # missing or damaged: compute it
    with path.open("rb") as file:
        found = hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()
    if time.time_ns() - stat.st_mtime_ns > _SETTLED_NS:
        with suppress(OSError):  # remembering it only saves time
            write_atomically(memo, json.dumps({**seen, "digest": found}).encode())
    return found


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is complete or not there, also after a crash; its folder is made, and read as others are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_room(folder: Path, size: int) -> None:
    """Find out whether a folder can hold ``size`` more bytes, before the work that makes them.

    Raises:
        DataError: it cannot be written to, or its disk is too full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            for start in range(0, size, _CHUNK):
                probe.write(bytes(min(_CHUNK, size - start)))
            probe.flush()
    except OSError as error:
        raise DataError(
            f"The cache {folder} cannot hold {size / 1e6:.1f} MB more ({error.strerror}). "
            "Make room, or point RLFACTORY_CACHE at a folder that can."
        ) from error


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """``folder``, built by ``build(temporary folder)`` unless it exists. A folder that exists is complete.

    Raises:
        DataError: the folder's parent cannot be written to.
    """
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for stale in folder.parent.glob(f".{folder.name}-*"):  # of a process that was killed while it built
            if time.time() - stale.stat().st_mtime > _STALE_S:
                shutil.rmtree(stale, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    except OSError as error:
        raise DataError(
            f"The cache {folder.parent} cannot be written to ({error.strerror}). "
            "Point RLFACTORY_CACHE at a folder that can."
        ) from error
    try:
        build(temporary)
        try:
            os.rename(temporary, folder)
        except OSError:
            if not folder.is_dir():  # if it is, another process was faster and built the same
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder
