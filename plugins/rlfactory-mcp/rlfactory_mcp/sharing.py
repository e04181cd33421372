"""Servers that the processes of a group share. `daemon` keeps them in a process of its own, and speaks MCP for each.

A client connects to its socket, says which server it means, and reads a line, which shows that the process is alive.
What follows are the lines of a stdio server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from filelock import AsyncFileLock

from rlfactory_core.cache import digest
from rlfactory_core.errors import BackendError
from rlfactory_mcp.config import ServerConfig
from rlfactory_mcp.reasons import LastWords
from rlfactory_mcp.rpc import LONGEST_LINE, Peer, read_lines, to_line

_DAEMON = "rlfactory_mcp.daemon"
_NAME_DIGITS = 16
_LONGEST_PATH = 100  # bytes; a Unix socket's path has to fit 104 on macOS, 108 on Linux
_SILENT_S = 20.0  # until the process has to say that it is alive; no server is asked for that


_log = logging.getLogger(__name__)


def meeting_place(group: str, servers: Sequence[ServerConfig]) -> Path:
    """The same folder for all processes of a group that use the same servers from the same working directory."""
    description = json.dumps([server.model_dump(mode="json") for server in servers], sort_keys=True)
    same = [group, description, str(Path.cwd()), version("rlfactory-mcp")]
    name = f"rlfactory-{os.getuid()}/{digest(same)[:_NAME_DIGITS]}"
    folder = Path(tempfile.gettempdir(), name)
    if len(os.fsencode(folder / "socket")) > _LONGEST_PATH:
        folder = Path("/tmp", name)  # noqa: S108 only its owner may enter the folder
    return folder


@dataclass(frozen=True, slots=True)
class Sharing:
    """Opens connections to the servers of a group; see `connection.Opener`."""

    folder: Path  # in which the process is found, as long as it runs
    servers: Sequence[ServerConfig] = ()  # all that the group shares, for the process if this one has to start it

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    @property
    def pid(self) -> Path:
        return self.folder / "pid"

    @property
    def lock(self) -> Path:
        """Its holder may connect, and start or end a process, of any group."""
        return self.folder.parent / "lock"

    def claim(self) -> None:
        """Make the folder around it, which only this user may enter.

        Raises:
            BackendError: it is open to other users.
        """
        around = self.folder.parent
        around.mkdir(mode=0o700, exist_ok=True)
        owned = around.stat()
        if owned.st_uid != os.getuid() or owned.st_mode & 0o077:
            raise BackendError(f"The folder {around} for MCP servers is open to other users. Remove it.")

    def remove(self) -> None:
        """Only for the holder of the lock."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @asynccontextmanager
    async def __call__(self, server: ServerConfig, last_words: LastWords) -> AsyncIterator[Peer]:
        """Connect to the process, which is started if there is none or if it does not answer.

        Raises:
            BackendError: it does not start, or others may enter its folder.
        """
        self.claim()
        async with AsyncFileLock(self.lock):
            self.folder.mkdir(exist_ok=True)
            found = await self._connect(server.name)
            if found is None:
                await asyncio.to_thread(self._start)
                found = await self._connect(server.name)
            if found is None:
                raise BackendError(
                    f"The process that keeps the MCP servers cannot be reached at {self.socket}. Remove the "
                    f"folder {self.folder} and start again."
                )
        reader, writer = found
        peer = Peer(lambda message: writer.write(to_line(message)), writer.transport.abort)
        reading = asyncio.ensure_future(read_lines(reader, peer, _log_line))
        try:
            yield peer
        finally:
            is_lost = reading.done()
            writer.close()
            reading.cancel()
            await asyncio.wait((reading,))
            if is_lost:
                await self._tidy()

    async def _connect(self, server: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """None if no process listens; one that has stopped is killed, because it would be waited for without end."""
        try:
            reader, writer = await asyncio.open_unix_connection(self.socket, limit=LONGEST_LINE)
        except OSError:
            return None
        try:
            writer.write(to_line({"server": server}))
            async with asyncio.timeout(_SILENT_S):
                if await reader.readline():
                    return reader, writer
        except TimeoutError:
            with suppress(OSError, ValueError):
                os.kill(int(self.pid.read_text()), signal.SIGKILL)
        writer.close()
        return None

    async def _tidy(self) -> None:
        """Remove what a process left that was killed."""
        async with AsyncFileLock(self.lock):
            found = await self._connect("")
            if found is None:
                self.remove()
            else:
                found[1].close()

    def _start(self) -> None:
        """Start the process and wait until it listens."""
        given = {
            **{name: str(getattr(self, name)) for name in ("folder", "socket", "pid", "lock")},
            "cwd": str(Path.cwd()),
            "servers": [server.model_dump(mode="json") for server in self.servers],
        }
        started = subprocess.run(  # noqa: S603 this interpreter and our own module
            [sys.executable, "-m", _DAEMON],
            input=json.dumps(given).encode(),
            # The same packages as in this process, and none from the daemon's working directory.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
        if started.returncode != 0:
            self.remove()
            raise BackendError("The process that keeps the MCP servers does not start; the reason is printed above.")


def _log_line(line: bytes) -> None:
    """A warning of the process is a text among the messages."""
    _log.warning("%s", json.loads(line))
