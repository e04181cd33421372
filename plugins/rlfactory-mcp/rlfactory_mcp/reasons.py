"""Why a connection to a server could not be made or was lost."""

from __future__ import annotations

from collections import deque
from urllib.parse import urlsplit

from rlfactory_core.errors import BackendError
from rlfactory_mcp.config import ServerConfig
from rlfactory_mcp.rpc import RELAYED, RpcError

_LINES = 40
_PRINTED = 10
_LINE_CHARS = 400


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


def explain(server: ServerConfig, error: Exception | None, last_words: LastWords) -> str:
    """Why a server did not start or went down: the reason, what was started, and the end of its stderr.

    Arguments and queries are left out, because they may hold secrets.
    """
    if isinstance(error, BackendError) or (isinstance(error, RpcError) and error.code == RELAYED):
        return str(error)
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


def in_words(error: Exception) -> str:
    """The name of the error's class is left out if the message is enough."""
    if isinstance(error, (TimeoutError, RefusedError, RpcError)):
        return str(error)
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _reason(server: ServerConfig, error: Exception | None, last_words: LastWords) -> str:
    if isinstance(error, FileNotFoundError) and server.command:
        missing = "folder" if error.filename == server.cwd else "program"
        spaced = missing == "program" and " " in server.command
        hint = " ('args' holds the arguments, and not 'command')" if spaced else ""
        return f"there is no {missing} {error.filename!r}{hint}"
    lost = error is None or (isinstance(error, RpcError) and error.lost)
    if last_words.ending and lost:
        return last_words.ending
    return "the connection was closed" if error is None else in_words(error)
