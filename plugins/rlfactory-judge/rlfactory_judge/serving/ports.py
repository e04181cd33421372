"""Ports that nobody listens on."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from rlfactory_core.errors import UsageError


def free_ports(host: str, count: int) -> tuple[int, ...]:
    """Different ones, as the kernel gives them out; another program may still take one before it is used.

    Raises:
        UsageError: this machine has no such address.
    """
    with ExitStack() as held:
        try:
            return tuple(_bound(held, host, 0) for _ in range(count))
        except OSError as error:
            raise UsageError(f"--host {host}: this machine cannot listen there ({error.strerror or error}).") from error


def check_free(host: str, ports: tuple[int, ...]) -> None:
    """Say so before anything is started.

    Raises:
        UsageError: somebody listens on one of them, or it may not be used.
    """
    for port in ports:
        try:
            with ExitStack() as held:
                _bound(held, host, port)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"Port {port} on {host or 'this machine'} cannot be used ({reason}). Replica i listens on --port + i. "
                "Choose another --port, or 0 for free ones."
            ) from error


def _bound(held: ExitStack, host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    probe = held.enter_context(socket.socket(family))
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port in TIME_WAIT is free
    probe.bind((host, port))
    probe.listen(1)
    return int(probe.getsockname()[1])
