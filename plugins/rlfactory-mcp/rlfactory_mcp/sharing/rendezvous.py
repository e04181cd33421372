"""Where clients find the daemon that owns their servers, and the messages that they exchange.

The meeting place is a folder with a socket and a lock. A message is JSON with its length before it: a request
``{"id": 1, "do": "call", …}`` and its reply ``{"id": 1, "result": …}`` or ``{"id": 1, "error": kind, "text": …}``.
``{"id": 1, "do": "cancel"}`` cancels a request and gets no reply; ``{"log": level, "text": …}`` is a log record of the
daemon.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rlfactory_core.cache import digest
from rlfactory_core.errors import (
    BackendError,
    RlfactoryError,
    ToolArgumentsError,
    ToolError,
    ToolFailedError,
    ToolUnavailableError,
)
from rlfactory_mcp.config import ServerConfig

_NAME_DIGITS = 16
_LONGEST_PATH = 100  # bytes; a Unix socket's path has to fit 104 on macOS, 108 on Linux


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A folder that only this user may enter; it exists as long as the daemon runs."""

    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    @contextmanager
    def try_lock(self) -> Iterator[bool]:
        """Yields whether the lock is held; its holder may start or end the daemon.

        Raises:
            BackendError: the folder is open to other users.
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
        """Whether the socket in the folder is this one, and not that of a later daemon."""
        try:
            return os.path.samestat(self.socket.stat(), socket)
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        """Remove the folder; only for the holder of the lock."""
        shutil.rmtree(self.folder, ignore_errors=True)


def meeting_place(group: str, servers: Sequence[ServerConfig]) -> Rendezvous:
    """The same folder for all processes of a group that use the same servers from the same working directory."""
    description = json.dumps([server.model_dump(mode="json") for server in servers], sort_keys=True)
    same = [group, description, str(Path.cwd()), version("rlfactory-mcp"), str(os.getuid())]
    name = f"rlfactory-{digest(same)[:_NAME_DIGITS]}"
    folder = Path(tempfile.gettempdir(), name)
    if len(os.fsencode(folder / "socket")) > _LONGEST_PATH:
        folder = Path("/tmp", name)  # noqa: S108 only its owner may enter the folder
    return Rendezvous(folder)


_LENGTH_BYTES = 4
_ERRORS: dict[str, type[RlfactoryError]] = {
    kind.__name__: kind for kind in (ToolError, ToolArgumentsError, ToolFailedError, ToolUnavailableError, BackendError)
}


def to_frame(message: dict[str, Any]) -> bytes:
    data = json.dumps(message, separators=(",", ":")).encode()
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next message; None if the other end is gone."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        message: dict[str, Any] = json.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError):
        return None
    return message


def error_reply(error: RlfactoryError) -> dict[str, str]:
    """An error as the fields of a reply; an error of an unknown kind counts as a failure of the daemon."""
    kind = type(error).__name__
    return {"error": kind if kind in _ERRORS else "ToolUnavailableError", "text": str(error)}


def reply_error(reply: dict[str, Any]) -> RlfactoryError:
    """The error that the fields of a reply stand for."""
    return _ERRORS[reply["error"]](reply["text"])
