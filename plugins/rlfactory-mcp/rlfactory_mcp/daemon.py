"""The process that keeps the servers of a group. `sharing` starts it with ``python -m``.

It reads its configuration from stdin, because other users can read arguments and files. It listens, leaves the process
that started it, stderr included, and ends when its last client is gone. Its warnings go to one of its clients.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rlfactory_core.errors import BackendError, ToolUnavailableError
from rlfactory_mcp.config import ServerConfig
from rlfactory_mcp.listing import Listing
from rlfactory_mcp.rpc import LONGEST_LINE, RELAYED, RpcError, to_line
from rlfactory_mcp.servers import Servers

_FIRST_S = 30.0  # to wait for the first client
_GRACE_S = 1.0  # to wait for another client once all are gone
_LOOK_S = 0.1  # between checks whether there are clients
_BACKLOG = 1024


class _Daemon:
    """Serves any number of clients from one set of servers."""

    def __init__(self, servers: Sequence[ServerConfig]) -> None:
        self._servers = Servers(servers)
        self._starts = {name: asyncio.ensure_future(self._servers.start(name)) for name in self._servers.pools}
        self.clients: set[asyncio.StreamWriter] = set()
        self.vacant_until = _now() + _FIRST_S  # if no client comes

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it is gone, then end its requests."""
        self.clients.add(writer)
        tasks: dict[Any, asyncio.Task[None]] = {}

        async def answer(name: str, message: Mapping[str, Any]) -> None:
            try:
                writer.write(to_line({"id": message["id"], **await self._reply(name, message)}))
                await writer.drain()
            except OSError:
                pass  # it is gone
            finally:
                del tasks[message["id"]]

        try:
            writer.write(to_line("hello"))
            name = json.loads(await reader.readline())["server"]
            async for line in reader:
                message = json.loads(line)
                number = message.get("id")
                if message["method"] == "notifications/cancelled":
                    if cut := tasks.get(message["params"]["requestId"]):
                        cut.cancel()
                elif number is not None:
                    tasks[number] = asyncio.ensure_future(answer(name, message))
        except (OSError, ValueError):  # it is gone
            pass
        finally:
            writer.close()
            for task in list(tasks.values()):
                task.cancel()
            self.clients.discard(writer)
            self.vacant_until = _now() + _GRACE_S

    async def _reply(self, server: str, message: Mapping[str, Any]) -> dict[str, Any]:
        method = message["method"]
        try:
            if method == "ping":
                return {"result": {}}
            listing: Listing = await asyncio.shield(self._starts[server])
            if method == "initialize":
                return {"result": listing.greeting}
            return {"result": await self._servers.pools[server].request(method, message["params"])}
        except RpcError as error:
            return {"error": {"code": error.code, "message": str(error)}}
        except ValueError:
            return {"result": None}  # the server's answer is not valid
        except (BackendError, ToolUnavailableError) as error:
            return {"error": {"code": RELAYED, "message": str(error)}}

    async def close(self) -> None:
        for writer in self.clients:
            writer.close()
        for start in self._starts.values():
            start.cancel()
        await asyncio.gather(*self._starts.values(), return_exceptions=True)
        await self._servers.close()


class _ToClient(logging.Handler):
    def __init__(self, clients: Collection[asyncio.StreamWriter]) -> None:
        super().__init__(logging.WARNING)
        self._clients = clients

    def emit(self, record: logging.LogRecord) -> None:
        for writer in self._clients:
            writer.write(to_line(self.format(record)))
            return


async def _keep(place: Mapping[str, Path], listening: socket.socket, servers: Sequence[ServerConfig]) -> None:
    """Serve until the last client is gone, or until a signal; ``place`` has the paths of `sharing.Sharing`."""
    daemon = _Daemon(servers)
    logging.getLogger().addHandler(_ToClient(daemon.clients))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = await asyncio.start_unix_server(daemon.serve, sock=listening, limit=LONGEST_LINE)
    try:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _LOOK_S)
            if not stop.is_set() and (daemon.clients or _now() < daemon.vacant_until):
                continue
            # Who connects holds the lock, too.
            with suppress(Timeout), FileLock(place["lock"], timeout=0):
                if stop.is_set() or not daemon.clients:
                    with suppress(OSError):
                        if place["pid"].read_text() == str(os.getpid()):  # and not of a later process
                            shutil.rmtree(place["folder"], ignore_errors=True)
                    return
    finally:
        server.close()
        await daemon.close()


def _now() -> float:
    return asyncio.get_running_loop().time()


def main() -> None:
    given = json.loads(sys.stdin.read())
    place = {name: Path(given[name]) for name in ("folder", "socket", "pid", "lock")}
    place["socket"].unlink(missing_ok=True)  # a process that was killed leaves it
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(place["socket"]))
    listening.listen(_BACKLOG)
    if os.fork():
        os._exit(0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    place["pid"].write_text(str(os.getpid()))
    os.chdir(given["cwd"])
    asyncio.run(_keep(place, listening, tuple(map(ServerConfig.model_validate, given["servers"]))))


if __name__ == "__main__":
    main()
