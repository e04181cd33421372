"""The free ports of this machine, and the GPUs that this process may use."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import ExitStack

from rlfactory_core.errors import UsageError


def free_ports(host: str, count: int) -> tuple[int, ...]:
    """Different free ports from the kernel. Another program may still take one before it is used.

    Raises:
        UsageError: the address does not belong to this machine.
    """
    with ExitStack() as held:
        try:
            return tuple(_bound(held, host, 0) for _ in range(count))
        except OSError as error:
            raise UsageError(f"--host {host}: this machine cannot listen there ({error.strerror or error}).") from error


def check_free(host: str, ports: tuple[int, ...]) -> None:
    """Check ports before anything is started.

    Raises:
        UsageError: a port is in use or not allowed.
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


_VARIABLE = "CUDA_VISIBLE_DEVICES"
_PATIENCE_S = 30.0


def visible_gpus() -> tuple[str, ...]:
    """The GPUs in ``CUDA_VISIBLE_DEVICES``; all of the machine's if that is not set."""
    if _VARIABLE in os.environ:
        named = [name.strip() for name in os.environ[_VARIABLE].split(",")]
        # CUDA ignores everything after the first invalid name.
        ends = next((position for position, name in enumerate(named) if name in ("", "-1")), len(named))
        return tuple(named[:ends])
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    query = [program, "--query-gpu=index", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(found.stdout.split())
