"""What a transport gives a connection, and why a connection could not be made or was lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import anyio

from rlfactory_mcp import compat
from rlfactory_mcp.calls import PipeCalls
from rlfactory_mcp.config import ServerConfig

_LINES = 40
_PRINTED = 10
_LINE_CHARS = 400


_CLOSED = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)


class RefusedError(ConnectionError):
    """The first request got a 4xx status, so the server may speak the older SSE transport."""


class LastWords:
    """The end of a server's stderr, what it printed in place of messages, and how its process ended, for errors."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._open = ""
        self.printed: deque[str] = deque(maxlen=_PRINTED)  # on stdout, where only messages belong
        self.ending = ""  # such as "it ended with exit code 1"

    def add(self, text: str) -> None:
        *lines, last = (self._open + text).split("\n")
        self._lines.extend(line.rstrip()[:_LINE_CHARS] for line in lines)
        self._open = last[:_LINE_CHARS]

    def add_printed(self, line: bytes) -> None:
        self.printed.append(line[:_LINE_CHARS].decode("utf-8", "replace").rstrip())

    def __str__(self) -> str:
        return "\n".join(line for line in (*self._lines, self._open) if line)


@dataclass(frozen=True, slots=True)
class Link:
    """An open transport; the streams are for the SDK's session."""

    read: Any
    write: Any
    kill: Callable[[], None] = lambda: None  # ends the server at once, whatever state it is in
    calls: PipeCalls | None = None  # None: calls go through the session


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """What a transport needs to open a link."""

    server: ServerConfig  # with its variables expanded
    over: asyncio.Event  # set by the transport when the server is gone
    last_words: LastWords = field(default_factory=LastWords)


def explain(server: ServerConfig, error: Exception | None, last_words: LastWords) -> str:
    """Why a server did not start or went down: the reason, what was started, and the end of its stderr.

    Arguments and queries are left out, because they may hold secrets.
    """
    lines = [f"{_reason(server, error, last_words)}."]
    if server.command:
        lines.append(f"Command: {server.command} with {len(server.args)} arguments")
    else:
        address = urlsplit(server.url)
        lines.append(f"Address: {address.scheme}://{address.hostname}:{address.port or ''}{address.path}")
    if last_words.printed:
        lines.append("It printed to stdout, where only messages of the protocol belong:")
        lines.extend(f"    {line}" for line in last_words.printed)
    if written := str(last_words):
        lines.append("The end of its stderr:")
        lines.extend(f"    {line}" for line in written.splitlines())
    return server.redact("\n".join(lines))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group of groups (the SDK's task groups make them), or the one error itself."""
    inner = getattr(error, "exceptions", None)
    if inner is None:
        yield error
    else:
        for part in inner:
            yield from leaves(part)


def in_words(error: BaseException) -> str:
    """The first error of a group; the name of its class is left out if the message is enough."""
    leaf = next(leaves(error))
    answer = compat.rpc_error(leaf)
    if answer is not None:
        return answer.message
    if isinstance(leaf, (TimeoutError, RefusedError)):
        return str(leaf)
    return f"{type(leaf).__name__}: {leaf}".splitlines()[0]


def _reason(server: ServerConfig, error: Exception | None, last_words: LastWords) -> str:
    leaf = None if error is None else next(leaves(error))
    if isinstance(leaf, FileNotFoundError) and server.command:
        missing = "folder" if leaf.filename == server.cwd else "program"
        spaced = missing == "program" and " " in server.command
        hint = " ('args' holds the arguments, and not 'command')" if spaced else ""
        return f"there is no {missing} {leaf.filename!r}{hint}"
    answer = None if leaf is None else compat.rpc_error(leaf)
    lost = leaf is None or isinstance(leaf, (OSError, *_CLOSED)) or (answer is not None and answer.connection_lost)
    if last_words.ending and lost and not isinstance(leaf, TimeoutError):
        return last_words.ending
    return "the connection was closed" if leaf is None else in_words(leaf)
