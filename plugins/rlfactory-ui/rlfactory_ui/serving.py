"""Serves the page until it is stopped."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from rlfactory_devkit.serving import PromptProtocol, end_quietly

from rlfactory_ui.access import Access
from rlfactory_ui.app import create_app
from rlfactory_ui.players import Players


async def serve(
    runs: Path, listener: socket.socket, hosts: frozenset[str], password: str | None, ready: Callable[[str], None]
) -> None:
    """Serve the runs of a folder on a bound socket.

    Args:
        hosts: see `Access`.
        ready: called with a one-time token as soon as requests are answered.
    """
    players = Players()
    access = Access(listener.getsockname()[1], hosts, password)
    config = uvicorn.Config(
        create_app(runs, access, players),
        http=PromptProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    end_quietly()
    server = uvicorn.Server(config)
    ready(access.link())
    try:
        await server.serve(sockets=[listener])
    finally:
        await players.close()
