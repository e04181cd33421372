"""Connections in several small pools: httpx goes through all of a pool's connections for each request.

With 64 connections in one pool that takes several milliseconds of CPU a request, with eight pools of eight about one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

_POOL = 8  # connections


class ConnectionPools:
    """As an `httpx.AsyncClient` without time limits, of which each request takes the least busy of several.

    Args:
        headers: of every request.
        connections: most requests at once; the caller keeps to it.
    """

    def __init__(self, headers: Mapping[str, str], connections: int) -> None:
        import httpx

        verify = httpx.create_ssl_context()  # takes some 20 ms, and one serves all
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=_POOL)
        # Deadlines are for the whole of a request; httpx would limit each of its phases.
        self._clients = [
            httpx.AsyncClient(headers=headers, limits=limits, timeout=None, verify=verify)  # noqa: S113
            for _ in range(-(-connections // _POOL))
        ]
        self._busy = [0] * len(self._clients)

    async def request(self, method: str, url: str, content: str | None) -> httpx.Response:
        """See `httpx.AsyncClient.request`."""
        at = min(range(len(self._busy)), key=self._busy.__getitem__)
        self._busy[at] += 1
        try:
            return await self._clients[at].request(method, url, content=content)
        finally:
            self._busy[at] -= 1

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()
