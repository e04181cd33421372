"""What goes over the socket between a group's processes and their host: JSON with its length before it.

A request is ``{"id": 1, "do": "call", …}``, its reply ``{"id": 1, "result": …}`` or ``{"id": 1, "error": kind,
"text": …}``. ``{"id": 1, "do": "cancel"}`` takes a request back and has no reply; ``{"log": level, "text": …}`` is what
the host has to say.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from rlfactory_core.errors import BackendError, RlfactoryError, ToolArgumentsError, ToolError, ToolUnavailableError

_LENGTH_BYTES = 4
_ERRORS: dict[str, type[RlfactoryError]] = {
    kind.__name__: kind for kind in (ToolError, ToolArgumentsError, ToolUnavailableError, BackendError)
}


def to_frame(message: dict[str, Any]) -> bytes:
    data = json.dumps(message, separators=(",", ":")).encode()
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next message; None where the other end is gone."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        message: dict[str, Any] = json.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError):
        return None
    return message


def error_reply(error: RlfactoryError) -> dict[str, str]:
    """An error as the fields of a reply; one of a kind that is not passed on counts as the host's failure."""
    kind = type(error).__name__
    return {"error": kind if kind in _ERRORS else "ToolUnavailableError", "text": str(error)}


def reply_error(reply: dict[str, Any]) -> RlfactoryError:
    """The same error again, at the other end."""
    return _ERRORS[reply["error"]](reply["text"])
