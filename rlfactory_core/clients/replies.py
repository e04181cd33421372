"""Reads a server's reply up to a limit, so that no server can fill the memory of the run that asks it."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

__all__ = ["MAX_BYTES", "bounded_request"]

MAX_BYTES = 16 << 20  # of a reply, unpacked; JSON takes up to 20 times as much as objects of Python

_ENCODINGS = ("gzip", "x-gzip", "deflate")  # these are unpacked with a limit


async def bounded_request(
    client: httpx.AsyncClient, method: str, url: str | httpx.URL, *, max_bytes: int = MAX_BYTES, **options: Any
) -> httpx.Response:
    """As `httpx.AsyncClient.request`; reading stops at ``max_bytes``, before and after unpacking.

    Raises:
        httpx.DecodingError: the reply is longer, or packed in another way than was asked for.
        httpx.HTTPError: see httpx.
    """
    import httpx

    headers = {**options.pop("headers", {}), "Accept-Encoding": "gzip, deflate"}
    async with client.stream(method, url, headers=headers, **options) as response:
        try:
            content = await _content(response, max_bytes)
        except (ValueError, zlib.error) as error:
            raise httpx.DecodingError(str(error), request=response.request) from error
        kept = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_THE_BODY]
        return httpx.Response(response.status_code, headers=kept, content=content, request=response.request)


_OF_THE_BODY = ("content-encoding", "content-length", "transfer-encoding")


async def _content(response: httpx.Response, max_bytes: int) -> bytes:
    encoding = response.headers.get("content-encoding", "identity").strip().lower() or "identity"
    if encoding not in (*_ENCODINGS, "identity"):
        raise ValueError(f"it is encoded as {encoding[:40]!r}; expected gzip, deflate, or no encoding")
    unpack = None if encoding == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 32)
    content = bytearray()
    async for chunk in response.aiter_raw():
        room = max_bytes - len(content) + 1
        if unpack is None:
            content += chunk[:room]
        else:
            try:
                content += unpack.decompress(chunk, room)
            except zlib.error:
                if content or encoding != "deflate":
                    raise
                unpack = zlib.decompressobj(-zlib.MAX_WBITS)  # as some servers understand "deflate"
                content += unpack.decompress(chunk, room)
        if len(content) > max_bytes:
            raise ValueError(f"it is longer than {max_bytes:,} bytes")
    if unpack is not None and response.num_bytes_downloaded and not unpack.eof:
        raise ValueError("it breaks off")
    return bytes(content)
