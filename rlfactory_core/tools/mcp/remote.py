"""The servers of a group, kept by a process that all of the group share (`host`)."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory_core.errors import BackendError, ToolUnavailableError
from rlfactory_core.tools.mcp.compat import ListedTool, Listing
from rlfactory_core.tools.mcp.config import ServerConfig
from rlfactory_core.tools.mcp.frames import read_frame, reply_error, to_frame
from rlfactory_core.tools.mcp.meeting import MeetingPlace

_log = logging.getLogger(__name__)

_POLL_S = 0.02  # between looks for the lock or the host
_MEET_S = 60.0  # for a host to be there, started by whomever


class _Line:
    """One connection to a host, with the requests under way on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._reading = asyncio.ensure_future(self._read(reader))

    @property
    def gone(self) -> bool:
        return self._reading.done()

    async def request(self, do: str, **fields: Any) -> Any:
        """What the host answers.

        Raises:
            ToolUnavailableError: the host went away.
            ToolError, ToolArgumentsError, BackendError: as it says.
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
        self._reading.cancel()
        await asyncio.wait((self._reading,))
        self._writer.close()

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
            self._writer.close()
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(ToolUnavailableError("the process that keeps the MCP servers went away"))


class RemoteServers:
    """`servers.Servers` in the group's host, which is started where none is there, also when it died.

    Args:
        servers: with their variables expanded, for the host if it is this process that starts it.
    """

    def __init__(self, place: MeetingPlace, servers: Sequence[ServerConfig]) -> None:
        self._place = place
        self._servers = servers
        self._line: _Line | None = None
        self._meeting: asyncio.Task[_Line] | None = None
        self._left = False

    async def open(self) -> Mapping[str, Listing]:
        """See `servers.Servers.open`; all processes of the group get the same answer."""
        answer = await (await self._meet()).request("open")
        return {
            name: Listing(item["identity"], tuple(ListedTool(**tool) for tool in item["tools"]))
            for name, item in answer.items()
        }

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], session: str = "") -> str:
        """See `servers.Servers.call`."""
        line = self._line if self._line is not None and not self._line.gone else await self._meet()
        answer: str = await line.request("call", server=server, tool=tool, arguments=arguments, session=session)
        return answer

    async def start_session(self, server: str) -> str:
        """See `servers.Servers.start_session`."""
        session: str = await (await self._meet()).request("start_session", server=server)
        return session

    async def end_session(self, session: str) -> None:
        """See `servers.Servers.end_session`."""
        if self._line is not None and not self._line.gone:
            await self._line.request("end_session", session=session)

    async def close(self) -> None:
        """Leave; the host ends soon after the last one has left."""
        self._left = True
        if self._meeting is not None:
            await asyncio.wait((self._meeting,))
        if self._line is not None:
            await self._line.close()

    async def _meet(self) -> _Line:
        """The line to the host, made anew where it is gone: once for all who ask, and whoever of them gives up.

        Raises:
            BackendError: there is no host, and none can be started.
        """
        if self._line is not None and not self._line.gone:
            return self._line
        if self._meeting is None or self._meeting.done():
            self._meeting = asyncio.ensure_future(self._find_host())
            # Whoever asked may have given up by then.
            self._meeting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._meeting)

    async def _find_host(self) -> _Line:
        ends = asyncio.get_running_loop().time() + _MEET_S
        while not self._left and asyncio.get_running_loop().time() < ends:
            self._line = await self._try_line()
            if self._line is not None:
                return self._line
            with self._place.try_lock() as locked:
                if locked and not await self._is_met():  # who held the lock before may have started it
                    await self._start_host()
            await asyncio.sleep(_POLL_S)
        raise BackendError("The process that keeps the MCP servers cannot be reached.")

    async def _try_line(self) -> _Line | None:
        """None where nobody listens, or where who does is about to end."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._place.socket)
        except OSError:
            return None
        line = _Line(reader, writer)
        try:
            await line.request("hello")
        except ToolUnavailableError:
            await line.close()
            return None
        return line

    async def _is_met(self) -> bool:
        line = await self._try_line()
        if line is not None:
            await line.close()
        return line is not None

    async def _start_host(self) -> None:
        """To be called by who holds the lock; returns once the host listens."""
        self._place.socket.unlink(missing_ok=True)  # of one that was killed
        given = {
            "folder": str(self._place.folder),
            "cwd": str(Path.cwd()),
            "servers": [server.to_json() for server in self._servers],
        }
        command = [sys.executable, "-m", "rlfactory_core.tools.mcp.host"]
        started = await asyncio.to_thread(
            subprocess.run,
            command,
            input=json.dumps(given).encode(),
            # The same packages as here, and none that happens to lie in the working directory.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            cwd=self._place.folder,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
        if started.returncode != 0:
            raise BackendError("The process that keeps the MCP servers does not start; its reason stands above.")
