"""Tool calls on one connection, over a server's pipe or in the SDK's session, and their results as text.

Calls on a pipe bypass the session, which would take most of a call's time: it validates, copies and passes on each
message several times. The session still does the handshake, the pings and the server's own requests.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from rlfactory_core.errors import MissingExtraError, ToolError, ToolFailedError
from rlfactory_core.images import Image
from rlfactory_core.utils.text import to_text
from rlfactory_mcp import compat
from rlfactory_mcp.compat import RpcError

_log = logging.getLogger(__name__)
_FIELDS = {"content", "structuredContent", "isError", "_meta"}  # of a result
_FIRST_NUMBER = 1_000_000_000  # the session counts its requests from zero


class PipeCalls:
    """Calls over a pipe, between one start of a connection and its next loss.

    They write their requests themselves, and take their answers before the session sees them.

    Args:
        write: accepts bytes without waiting for the server to read them.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._unwritten: list[bytes] = []
        self._numbers = itertools.count(_FIRST_NUMBER)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._lost = False

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result as the server sent it. If the call is cancelled, the server is told so.

        Raises:
            RpcError: the server answered with an error, or is gone.
        """
        if self._lost:
            raise RpcError.lost()
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send("tools/call", {"name": name, "arguments": dict(arguments)}, number)
        try:
            message = await answer
        except asyncio.CancelledError:
            self._send("notifications/cancelled", {"requestId": number})
            raise
        finally:
            del self._answers[number]
        return compat.result_of(message)

    def take(self, line: bytes) -> bool:
        """Use a line from the server if it answers a call, which may be a cancelled one; returns whether it does."""
        message = _parse(line)
        if not isinstance(message, dict) or "method" in message:
            return False
        number = message.get("id")
        if isinstance(number, str) and number.isdecimal():  # some servers return it as a string
            number = int(number)
        if not isinstance(number, int) or number < _FIRST_NUMBER:
            return False
        answer = self._answers.get(number)
        if answer is not None and not answer.done():
            answer.set_result(message)
        return True

    def lose(self) -> None:
        """Fail the calls in flight, because the server is gone."""
        self._lost = True
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(RpcError.lost())

    def _send(self, method: str, params: Mapping[str, Any], number: int | None = None) -> None:
        """Queue a message; calls made in the same iteration of the event loop go out in one write."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unwritten.append(json.dumps(message).encode() + b"\n")

    def _flush(self) -> None:
        if not self._lost:
            self._write(b"".join(self._unwritten))
        self._unwritten.clear()


def _parse(line: bytes) -> Any:
    """The line as JSON, or None. Half surrogate pairs, which JavaScript servers write, pass only the slower parser."""
    try:
        return from_json(line)
    except ValueError:
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            return None


class SessionCalls:
    """As `PipeCalls`, in the SDK's session, for other transports."""

    def __init__(self, session: compat.Session) -> None:
        self._session = session
        self._tasks: set[asyncio.Task[Mapping[str, Any]]] = set()
        self._lost = False

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        # In a task of its own, so that `lose` can cancel it: a session that ends leaves its callers waiting.
        task = asyncio.ensure_future(self._session.call_tool(name, arguments))
        self._tasks.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._lost:
                raise RpcError.lost() from None
            raise
        finally:
            self._tasks.discard(task)

    def lose(self) -> None:
        self._lost = True
        for task in self._tasks:
            task.cancel()


def render(result: Mapping[str, Any]) -> str:
    """The text of a ``tools/call`` result in its wire form.

    Text blocks are joined by line breaks. Images become their names, sound a short note. Structured content
    is used only if there is no text, because servers send both for clients that know only one of them. A result of
    another form, such as a bare text, is read as it is meant; what is in no known field is shown as JSON.

    Raises:
        ToolError: the result reports a failure, whose text the error holds.
        ToolFailedError: it does not follow the protocol.
    """
    try:
        blocks = [_block(block) for block in _blocks(result) if block is not None]
    except (AttributeError, KeyError, TypeError) as error:
        raise ToolFailedError("the server's answer is not valid") from error
    structured = result.get("structuredContent")
    text = "\n".join(blocks) if blocks or structured is None else to_text(structured)
    if str(result.get("isError", result.get("is_error"))).lower() in ("true", "1"):
        raise ToolError(text or "the tool failed and gave no reason")
    return text


def _blocks(result: Mapping[str, Any]) -> Sequence[Any]:
    content = result.get("content")
    if content is None:
        rest = {key: value for key, value in result.items() if key not in _FIELDS and value is not None}
        return () if not rest or "structuredContent" in result else (rest["text"] if rest.keys() == {"text"} else rest,)
    return content if isinstance(content, list) else (content,)


def has_images(result: Mapping[str, Any]) -> bool:
    """Whether `render` has images to read, which takes long."""
    blocks = result.get("content")
    return isinstance(blocks, list) and any(isinstance(each, dict) and each.get("type") == "image" for each in blocks)


def _block(block: Any) -> str:
    if not isinstance(block, Mapping):
        return to_text(block)
    kind = block.get("type")
    if kind == "text":
        return "" if block["text"] is None else to_text(block["text"])
    if kind == "image":
        return _image(block)
    if kind == "audio":
        return f"[{kind}, {block['mimeType']}, {_size(block['data'])}: not shown]"
    if kind == "resource_link":
        about = ": ".join(str(block[key]) for key in ("name", "description") if block.get(key))
        return f"[{about}]({block['uri']})"
    resource = block.get("resource", {})
    if "text" in resource:
        return to_text(resource["text"])
    if "blob" in resource:
        mime = resource.get("mimeType", "unknown type")
        return f"[resource {resource.get('uri')}, {mime}, {_size(resource['blob'])}: not shown]"
    return to_text(block)


def _image(block: Mapping[str, Any]) -> str:
    """Its name, or a note if it cannot be read."""
    try:
        return str(Image.of(b64decode(block["data"])))
    except (ValueError, MissingExtraError) as error:  # `DataError` is a ValueError, as that of the base64
        _log.warning("an MCP server's image is not shown: %s", error)
        return f"[image, {block['mimeType']}, {_size(block['data'])}: not shown]"


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4:,} bytes"
