"""The process that owns the servers of a group. `client` starts it with ``python -m``.

It reads its configuration from stdin, because other users can read arguments and files. It then listens, detaches from
the process that started it, stderr included, and ends when its last client is gone. Its log records go to one of its
clients.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlfactory_core.errors import RlfactoryError, ToolUnavailableError
from rlfactory_mcp.compat import Listing
from rlfactory_mcp.config import ServerConfig
from rlfactory_mcp.servers import LocalServers
from rlfactory_mcp.sharing.rendezvous import Rendezvous, error_reply, read_frame, to_frame

_log = logging.getLogger(__name__)

_FIRST_S = 30.0  # to wait for the first client
_GRACE_S = 1.0  # to wait for another client once all are gone
_LOOK_S = 0.1  # between checks whether there are clients
_BACKLOG = 1024


class _Daemon:
    """Serves any number of clients from one set of servers."""

    def __init__(self, servers: Sequence[ServerConfig]) -> None:
        self.servers = LocalServers(servers)
        self.opening = asyncio.ensure_future(self._open())
        self.clients: set[_Client] = set()
        self.vacant_until = _now() + _FIRST_S  # if no client comes

    async def _open(self) -> Mapping[str, Listing]:
        try:
            return await self.servers.open()
        except Exception:
            await self.servers.close()
            raise

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it is gone, then end its requests and sessions."""
        client = _Client(self, writer)
        self.clients.add(client)
        try:
            while (message := await read_frame(reader)) is not None:
                client.take(message)
        finally:
            await client.leave()
            self.clients.discard(client)
            self.vacant_until = _now() + _GRACE_S
            client.gone.set()

    async def close(self) -> None:
        for client in self.clients:
            client.hang_up()
        await asyncio.gather(*(client.gone.wait() for client in self.clients))
        self.opening.cancel()
        with suppress(Exception, asyncio.CancelledError):
            await self.opening
        await self.servers.close()


class _ClientLogHandler(logging.Handler):
    """Sends log records to one of the clients."""

    def __init__(self, daemon: _Daemon) -> None:
        super().__init__(logging.WARNING)
        self._daemon = daemon

    def emit(self, record: logging.LogRecord) -> None:
        for client in self._daemon.clients:
            client.send({"log": record.levelno, "text": self.format(record)})
            return


class _Client:
    """The requests and sessions of one process of the group."""

    def __init__(self, daemon: _Daemon, writer: asyncio.StreamWriter) -> None:
        self._daemon = daemon
        self._writer = writer
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._sessions: set[str] = set()
        self.gone = asyncio.Event()

    def take(self, message: dict[str, Any]) -> None:
        number, do = message.pop("id"), message.pop("do")
        if do == "cancel":
            if number in self._requests:
                self._requests[number].cancel()
            return
        task = asyncio.ensure_future(self._answer(number, do, message))
        self._requests[number] = task
        task.add_done_callback(lambda _: self._requests.pop(number, None))

    async def _answer(self, number: int, do: str, fields: dict[str, Any]) -> None:
        try:
            reply = {"result": await self._do(do, fields)}
        except RlfactoryError as error:
            reply = error_reply(error)
        except Exception:  # noqa: BLE001 the boundary to the other process
            _log.exception("the process that keeps the MCP servers failed at a call")
            reply = error_reply(ToolUnavailableError("the process that keeps the MCP servers failed"))
        self.send({"id": number, **reply})
        with suppress(OSError):
            await self._writer.drain()

    def send(self, message: dict[str, Any]) -> None:
        if not self._writer.is_closing():
            self._writer.write(to_frame(message))

    async def _do(self, do: str, fields: dict[str, Any]) -> Any:
        if do == "hello":
            return None
        listings = await asyncio.shield(self._daemon.opening)
        if do == "open":
            return {name: asdict(listing) for name, listing in listings.items()}
        if do == "start_session":
            session = await self._daemon.servers.start_session(**fields)
            self._sessions.add(session)
            return session
        if do == "end_session":
            self._sessions.discard(fields["session"])
            return await self._daemon.servers.end_session(**fields)
        return await self._daemon.servers.call(**fields)

    def hang_up(self) -> None:
        """Tell the client that the daemon ends; `_Daemon.serve` does the rest."""
        self._writer.close()

    async def leave(self) -> None:
        self._writer.close()
        tasks = tuple(self._requests.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*map(self._daemon.servers.end_session, self._sessions))


async def _keep(place: Rendezvous, listening: socket.socket, servers: Sequence[ServerConfig]) -> None:
    """Serve until the last client is gone, or until a signal."""
    ours = place.socket.stat()
    daemon = _Daemon(servers)
    logging.getLogger().addHandler(_ClientLogHandler(daemon))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = await asyncio.start_unix_server(daemon.serve, sock=listening)
    try:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _LOOK_S)
            if not stop.is_set() and (daemon.clients or _now() < daemon.vacant_until):
                continue
            with place.try_lock() as locked:  # if not, a client is about to connect
                if locked and (stop.is_set() or not daemon.clients):
                    if place.has(ours):
                        place.remove()
                    return
    finally:
        server.close()
        await daemon.close()


def _now() -> float:
    return asyncio.get_running_loop().time()


def main() -> None:
    given = json.loads(sys.stdin.read())
    os.chdir(given["cwd"])
    place = Rendezvous(Path(given["folder"]))
    servers = tuple(map(ServerConfig.model_validate, given["servers"]))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(place.socket))
    told, tells = os.pipe()
    if os.fork():
        os.close(tells)
        os._exit(0 if os.read(told, 1) else 1)
    listening.listen(_BACKLOG)  # not before: a client learns which process called this, see `client._kill_peer`
    os.write(tells, b"1")
    os.close(tells)
    os.close(told)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
    asyncio.run(_keep(place, listening, servers))


if __name__ == "__main__":
    main()
