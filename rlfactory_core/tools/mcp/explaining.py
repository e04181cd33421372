"""Why a server did not start or went down, in words for the people who run it; secrets are left out."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from rlfactory_core.tools.mcp import compat
from rlfactory_core.tools.mcp.config import ServerConfig
from rlfactory_core.tools.mcp.http import RefusedError
from rlfactory_core.tools.mcp.link import LastWords


def explain(server: ServerConfig, error: Exception | None, last_words: LastWords) -> str:
    """The reason, what was started, and what it last wrote to stderr. Arguments and queries may hold secrets."""
    lines = [f"{_reason(server, error, last_words)}."]
    if server.command:
        lines.append(f"Command: {server.command} with {len(server.args)} arguments")
    else:
        address = urlsplit(server.url)
        lines.append(f"Address: {address.scheme}://{address.hostname}:{address.port or ''}{address.path}")
    if written := str(last_words):
        lines.append("The last that it wrote to stderr:")
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
    """The first error of a group, without the names of classes where it says enough."""
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
        return f"there is no {missing} {leaf.filename!r}"
    if last_words.ending and not isinstance(leaf, TimeoutError):
        return last_words.ending
    return "the connection was closed" if leaf is None else in_words(leaf)
