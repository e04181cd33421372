"""Serves the page until it is stopped."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from rlfactory_core.serving import make_server
from rlfactory_ui.access import Access
from rlfactory_ui.app import create_app
from rlfactory_ui.commands import Commands


async def serve(
    runs: Path, listener: socket.socket, hosts: frozenset[str], password: str | None, ready: Callable[[str], None]
) -> None:
    """Serve the runs of a folder on a bound socket.

    Args:
        hosts: see `Access`.
        ready: called with a one-time token as soon as requests are answered.
    """
    commands = Commands()
    access = Access(listener.getsockname()[1], hosts, password)
    server = make_server(create_app(runs, access, commands), access_log=False, server_header=False, ws="none")
    ready(access.link())
    try:
        await server.serve(sockets=[listener])
    finally:
        await commands.close()
