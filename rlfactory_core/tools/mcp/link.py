"""What a transport gives a connection: two streams of messages, and a hand on what is at the other end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.tools.mcp.calls import Calls
from rlfactory_core.tools.mcp.config import ServerConfig

_LINES = 40
_LINE_CHARS = 400


class LastWords:
    """The end of what a server wrote to its stderr, and how it ended: for the people who have to find out why."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._open = ""
        self.ending = ""  # such as "it ended with exit code 1"

    def add(self, text: str) -> None:
        *lines, last = (self._open + text).split("\n")
        self._lines.extend(line.rstrip()[:_LINE_CHARS] for line in lines)
        self._open = last[:_LINE_CHARS]

    def __str__(self) -> str:
        return "\n".join(line for line in (*self._lines, self._open) if line)


@dataclass(frozen=True, slots=True)
class Link:
    """An open transport; the streams are those that the SDK's session takes."""

    read: Any
    write: Any
    kill: Callable[[], None] = lambda: None  # at once, whatever state the server is in
    calls: Calls | None = None  # none: they are made in the session


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """What a transport is opened for."""

    server: ServerConfig  # variables expanded
    over: asyncio.Event  # set by the transport when the server is gone
    last_words: LastWords = field(default_factory=LastWords)
