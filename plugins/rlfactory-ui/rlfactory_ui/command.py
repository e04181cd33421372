"""``rlfactory ui``: runs in the browser."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path

import click

from rlfactory_core.cli.output import echo
from rlfactory_core.errors import UsageError
from rlfactory_core.reporting import RUNS
from rlfactory_core.serving import listener

_ANY_4, _ANY_6 = str(ipaddress.IPv4Address(0)), str(ipaddress.IPv6Address(0))
PASSWORD = "RLFACTORY_UI_PASSWORD"


@click.command()
@click.argument("runs", type=click.Path(path_type=Path, file_okay=False), default=RUNS)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: a free one.")
@click.option("--no-open", is_flag=True, help="Only print the link.")
def ui(runs: Path, host: str, port: int, no_open: bool) -> None:
    """Start runs, watch them and look into them, in the browser.

    RUNS is the folder of the runs; what is outside it is not shown. The link that is printed opens one browser. On an
    address that other machines reach, a password is asked for (or read from RLFACTORY_UI_PASSWORD): whoever has it can
    start programs here.
    """
    loopback = _is_loopback(host)
    password = None if loopback else _password(host)
    listening = listener(host, port)
    port = listening.getsockname()[1]
    hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")) if loopback else frozenset()
    anywhere = host in (_ANY_4, _ANY_6)
    address = f"http://{_written('127.0.0.1' if anywhere else host)}:{port}"

    def ready(token: str) -> None:
        link = f"{address}/login?token={token}"
        echo(f"{link}\nCtrl-C ends it; runs go on.")
        if not no_open and sys.stdout.isatty() and (sys.platform != "linux" or os.environ.get("DISPLAY")):
            webbrowser.open(link)

    asyncio.run(_serve(runs, listening, hosts, password, ready))


async def _serve(
    runs: Path, listener: socket.socket, hosts: frozenset[str], password: str | None, ready: Callable[[str], None]
) -> None:
    """Serve the runs of a folder on a bound socket.

    Args:
        hosts: see `Access`.
        ready: called with a one-time token as soon as requests are answered.
    """
    from rlfactory_core.serving import make_server
    from rlfactory_ui.access import Access
    from rlfactory_ui.app import create_app
    from rlfactory_ui.commands import Commands

    commands = Commands()
    access = Access(listener.getsockname()[1], hosts, password)
    server = make_server(create_app(runs, access, commands), access_log=False, server_header=False, ws="none")
    ready(access.link())
    try:
        await server.serve(sockets=[listener])
    finally:
        await commands.close()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _password(host: str) -> str:
    echo(
        f"Other machines can reach {host}. Whoever has the password can start programs here as you, and the connection "
        "is not encrypted: use it in a network that you trust, or a tunnel (ssh -L) to a server on 127.0.0.1.",
        err=True,
    )
    password = os.environ.get(PASSWORD) or click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if len(password) < 8:
        raise UsageError(f"The password has {len(password)} characters; expected at least 8.")
    return str(password)


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host
