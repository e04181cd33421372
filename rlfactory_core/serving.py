"""What small web servers share: their socket, bounds on the time and the size of a request, and their end.

For plugins with a server of their own, which depend on uvicorn and Starlette.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import h11
import uvicorn
from starlette.requests import ClientDisconnect, Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlfactory_core.errors import UsageError

__all__ = ["BodyError", "listener", "make_server", "read_body"]

HEAD_S = 30.0  # in which a client has to send a request's first line and headers


def listener(host: str, port: int = 0) -> socket.socket:
    """A socket at which connections wait until they are served; port 0 takes a free one.

    Raises:
        UsageError: the address is not free, or not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only then: without it each answer waits for 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen()  # who reads the address may connect at once
    except OSError as error:
        bound.close()
        raise UsageError(
            f"Cannot listen on {host}:{port}: {error.strerror}. Choose another --host or --port."
        ) from error
    return bound


def make_server(app: Any, **options: Any) -> uvicorn.Server:
    """A server for an ASGI application, which closes a connection if a request's head takes longer than `HEAD_S`.

    Args:
        options: of `uvicorn.Config`.
    """
    logging.getLogger("uvicorn.error").addFilter(_is_no_end)
    config = uvicorn.Config(
        app, **{"log_config": None, "lifespan": "off", "timeout_graceful_shutdown": 1, **options}, http=_PromptProtocol
    )
    return uvicorn.Server(config)


class BodyError(Exception):
    """A body that is not read.

    Args:
        status: of the answer.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """The body of a Starlette request.

    Args:
        most: bytes.

    Raises:
        BodyError: it is longer, takes longer, or the client has gone.
    """
    read = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                read += chunk
                if len(read) > most:
                    raise BodyError(413, f"The body is longer than {most:,} bytes. Send several requests.")
    except TimeoutError:
        raise BodyError(408, f"The body took longer than {seconds:g} s.") from None
    except ClientDisconnect:
        raise BodyError(400, "The client has gone.") from None
    return bytes(read)


class _PromptProtocol(H11Protocol):
    """uvicorn's HTTP without its endless wait for the head of a request."""

    _late: asyncio.TimerHandle | None = None

    def _unsupported_upgrade_warning(self) -> None:
        """A client that asks for a WebSocket gets an HTTP answer. uvicorn would tell the user to install packages."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_S, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # the head is complete
            self._in_time()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        super().connection_lost(exc)

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _is_no_end(record: logging.LogRecord) -> bool:
    """False for the errors about what is cancelled when a server ends, such as a client's open WebSocket."""
    cancelled = record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not (cancelled or "graceful shutdown exceeded" in record.getMessage())
