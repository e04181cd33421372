"""Server-sent events that are too long for the SSE transport.

That of the SDK's second generation ends the connection, with all calls in flight, at an event of more than 1 MiB. Here
such an event becomes an error for the one call that it answers, with either generation.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator

_LONGEST = 1 << 20  # bytes of an event
_LINE_END = re.compile(r"\r\n|\n|\r")
_EVENT_END = re.compile(r"\r\n\r\n|\n\n|\r\r")
_TOO_LONG = -32097  # ours, in the range that JSON-RPC leaves free


async def fitting(chunks: AsyncIterator[str]) -> AsyncIterator[str]:
    """The same events, each as a whole, with those that are too long replaced."""
    parts: list[str] = []
    breaks = ""  # at the end of a chunk: perhaps the first half of an event's end
    async for chunk in chunks:
        *ended, begun = _EVENT_END.split(breaks + chunk)
        for event in ended:
            yield _fit("".join((*parts, event)))
            parts.clear()
        body = begun.rstrip("\r\n")
        breaks = begun[len(body) :]
        parts.append(body)


def _fit(event: str) -> str:
    if len(event.encode()) > _LONGEST:
        event = _error_for(event)
    return f"{event}\n\n"


def _error_for(event: str) -> str:
    """In place of the event: an error for the call that it answers, or nothing where it is no answer."""
    lines = _LINE_END.split(event)
    data = "\n".join(line.removeprefix("data:") for line in lines if line.startswith("data:"))
    try:
        message = json.loads(data)
        number = message["id"]
    except (ValueError, KeyError, TypeError):
        return ":"
    if "method" in message:
        return ":"
    error = {"code": _TOO_LONG, "message": f"the answer is too long ({len(data):,} characters)"}
    return f"data: {json.dumps({'jsonrpc': '2.0', 'id': number, 'error': error})}"
