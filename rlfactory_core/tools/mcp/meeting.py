"""Where the processes of a group meet the one that keeps their servers: a folder with a socket and a lock."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rlfactory_core import __version__
from rlfactory_core.cache import digest
from rlfactory_core.errors import BackendError
from rlfactory_core.tools.mcp.config import ServerConfig

_NAME_DIGITS = 16
_LONGEST_PATH = 100  # bytes; a Unix socket's path has to fit 104 on macOS, 108 on Linux


@dataclass(frozen=True, slots=True)
class MeetingPlace:
    """A folder that only this user may enter; it is there as long as somebody meets in it."""

    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "host"

    @contextmanager
    def try_lock(self) -> Iterator[bool]:
        """Yields whether the lock is held; who holds it may start the host, or end it.

        Raises:
            BackendError: the folder belongs to somebody else.
        """
        lock = self.folder / "lock"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        owned = self.folder.stat()
        if owned.st_uid != os.getuid() or owned.st_mode & 0o077:
            raise BackendError(f"The folder {self.folder} for MCP servers is open to other users. Remove it.")
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:  # the folder was removed in between
            yield False
            return
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), lock.stat()):
                    yield True
                    return
            yield False  # a lock that was removed while this one waited for it
        finally:
            os.close(handle)

    def has(self, socket: os.stat_result) -> bool:
        """Whether the socket that is there is this one, and not one of somebody who came after."""
        try:
            return os.path.samestat(self.socket.stat(), socket)
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        """To be called by who holds the lock."""
        shutil.rmtree(self.folder, ignore_errors=True)


def meeting_place(group: str, servers: Sequence[ServerConfig]) -> MeetingPlace:
    """The same for all processes of a group that use the same servers from the same working directory."""
    described = json.dumps([server.to_json() for server in servers], sort_keys=True)
    name = f"rlfactory-{digest([group, described, str(Path.cwd()), __version__, str(os.getuid())])[:_NAME_DIGITS]}"
    folder = Path(tempfile.gettempdir(), name)
    if len(os.fsencode(folder / "host")) > _LONGEST_PATH:
        folder = Path("/tmp", name)  # noqa: S108 only its owner may enter the folder
    return MeetingPlace(folder)
