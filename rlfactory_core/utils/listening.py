"""A socket for a small web server in this process."""

from __future__ import annotations

import socket


def listener(host: str, port: int = 0) -> socket.socket:
    """A socket at which connections wait until they are served; port 0 takes a free one.

    Raises:
        OSError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only then: without it each answer waits for 40 ms.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen()  # who reads the address may connect at once
    except OSError:
        made.close()
        raise
    return made
