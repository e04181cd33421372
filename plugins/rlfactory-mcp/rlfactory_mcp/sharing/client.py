"""The client side of shared MCP servers: it finds or starts the daemon and sends calls to it."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlfactory_core.errors import BackendError, ToolUnavailableError
from rlfactory_mcp.compat import ListedTool, Listing
from rlfactory_mcp.config import ServerConfig
from rlfactory_mcp.sharing.rendezvous import Rendezvous, read_frame, reply_error, to_frame

_log = logging.getLogger(__name__)

_DAEMON = "rlfactory_mcp.sharing.daemon"
_POLL_S = 0.02  # between attempts to get the lock or to reach the daemon
_CONNECT_S = 60.0  # for a daemon to be reachable, whichever process starts it
_SILENT_S = 20.0  # between greetings, and until one has to be answered; no server is asked for that


class _DaemonConnection:
    """One connection to a daemon, with the requests in flight on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._reading = asyncio.ensure_future(self._read(reader))
        self._watching = asyncio.ensure_future(self._watch())

    @property
    def gone(self) -> bool:
        return self._reading.done()

    async def request(self, do: str, **fields: Any) -> Any:
        """The daemon's answer to a request.

        Raises:
            ToolUnavailableError: the daemon ended.
            ToolError, ToolArgumentsError, BackendError: the daemon answered with this error.
        """
        if self.gone:
            raise ToolUnavailableError("the process that keeps the MCP servers is gone")
        number = next(self._numbers)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(to_frame({"id": number, "do": do, **fields}))
            return await reply
        except asyncio.CancelledError:
            self._writer.write(to_frame({"id": number, "do": "cancel"}))
            raise
        finally:
            del self._replies[number]

    async def close(self) -> None:
        tasks = (self._reading, self._watching)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._writer.close()

    async def greet(self) -> bool:
        """Whether the daemon answers; one that has stopped is killed, because everything would wait for it for ever."""
        try:
            async with asyncio.timeout(_SILENT_S):
                await self.request("hello")
        except ToolUnavailableError:
            return False
        except TimeoutError:
            _log.warning("the process that keeps the MCP servers does not answer, and is killed")
            _kill_peer(self._writer.get_extra_info("socket"))
            self._writer.transport.abort()
            return False
        return True

    async def _watch(self) -> None:
        while await self.greet():  # noqa: ASYNC110 - no event says when it is time
            await asyncio.sleep(_SILENT_S)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while (message := await read_frame(reader)) is not None:
                if "log" in message:
                    _log.log(message["log"], "%s", message["text"])
                    continue
                reply = self._replies.get(message["id"])
                if reply is None or reply.done():
                    continue
                if "error" in message:
                    reply.set_exception(reply_error(message))
                else:
                    reply.set_result(message["result"])
        finally:
            self._watching.cancel()
            self._writer.close()
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(ToolUnavailableError("the process that keeps the MCP servers went away"))


class RemoteServers:
    """As `LocalServers`, in the group's daemon, which is started if there is none, also after it died.

    Args:
        servers: with their variables expanded, for the daemon if this process starts it.
    """

    def __init__(self, place: Rendezvous, servers: Sequence[ServerConfig]) -> None:
        self._place = place
        self._servers = servers
        self._connection: _DaemonConnection | None = None
        self._connecting: asyncio.Task[_DaemonConnection] | None = None
        self._closed = False

    async def open(self) -> Mapping[str, Listing]:
        """See `LocalServers.open`; all processes of the group get the same answer."""
        answer = await (await self._connect()).request("open")
        return {
            name: Listing(
                item["identity"], tuple(ListedTool(**tool) for tool in item["tools"]), tuple(item["problems"])
            )
            for name, item in answer.items()
        }

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], session: str = "") -> str:
        connection = await self._connect()
        answer: str = await connection.request("call", server=server, tool=tool, arguments=arguments, session=session)
        return answer

    async def start_session(self, server: str) -> str:
        session: str = await (await self._connect()).request("start_session", server=server)
        return session

    async def end_session(self, session: str) -> None:
        if self._connection is not None and not self._connection.gone:
            await self._connection.request("end_session", session=session)

    async def close(self) -> None:
        """Disconnect; the daemon ends soon after its last client has disconnected."""
        self._closed = True
        if self._connecting is not None:
            await asyncio.wait((self._connecting,))
        if self._connection is None:
            return
        killed = self._connection.gone
        await self._connection.close()
        if killed and self._place.folder.exists():
            with self._place.try_lock() as locked:
                if locked and not await self._is_reachable():
                    self._place.remove()  # as the daemon would have done

    async def _connect(self) -> _DaemonConnection:
        """The connection, made again if it is lost: once for all callers, also if one of them is cancelled.

        Raises:
            BackendError: there is no daemon, and none can be started.
        """
        if self._connection is not None and not self._connection.gone:
            return self._connection
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.ensure_future(self._find_daemon())
            # Reads the exception, because all callers may have been cancelled by then.
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._connecting)

    async def _find_daemon(self) -> _DaemonConnection:
        ends = asyncio.get_running_loop().time() + _CONNECT_S
        while not self._closed and asyncio.get_running_loop().time() < ends:
            self._connection = await self._try_connection()
            if self._connection is not None:
                return self._connection
            with self._place.try_lock() as locked:
                if locked and not await self._is_reachable():  # the lock's last holder may have started the daemon
                    await self._start_daemon()
            await asyncio.sleep(_POLL_S)
        raise BackendError(
            f"The process that keeps the MCP servers cannot be reached at {self._place.socket}. Remove the folder "
            f"{self._place.folder} and start again."
        )

    async def _try_connection(self) -> _DaemonConnection | None:
        """None if no daemon listens, or if it is about to end."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._place.socket)
        except OSError:
            return None
        connection = _DaemonConnection(reader, writer)
        if await connection.greet():
            return connection
        await connection.close()
        return None

    async def _is_reachable(self) -> bool:
        connection = await self._try_connection()
        if connection is not None:
            await connection.close()
        return connection is not None

    async def _start_daemon(self) -> None:
        """Start the daemon and wait until it listens; only for the holder of the lock."""
        self._place.socket.unlink(missing_ok=True)  # a daemon that was killed leaves its socket
        given = {
            "folder": str(self._place.folder),
            "cwd": str(Path.cwd()),
            "servers": [server.model_dump(mode="json") for server in self._servers],
        }
        command = [sys.executable, "-m", _DAEMON]
        started = await asyncio.to_thread(
            subprocess.run,
            command,
            input=json.dumps(given).encode(),
            # The same packages as in this process, and none from the daemon's working directory.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            cwd=self._place.folder,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
        if started.returncode != 0:
            raise BackendError("The process that keeps the MCP servers does not start; the reason is printed above.")


def _kill_peer(connected: socket.socket) -> None:
    """Kill the daemon at the other end. Only Linux tells which process that is."""
    if not hasattr(socket, "SO_PEERCRED"):
        return
    pid = int.from_bytes(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)
    with suppress(OSError):
        if _DAEMON.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
