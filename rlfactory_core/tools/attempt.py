"""One attempt at one tool: the deadline that really cancels, and whose fault a failure is.

This is the boundary at which a tool's exceptions end. What the model sees of them never holds a traceback, a path or
the text of an exception that its author did not mean for the model; that goes to the log.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import ToolArgumentsError, ToolError
from rlfactory_core.protocols import Tool
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.tools.results import to_text
from rlfactory_core.types import FaultKind

_log = logging.getLogger(__name__)

_INFRA = (
    ConnectionError,  # ToolUnavailableError too
    TimeoutError,
    asyncio.TimeoutError,  # these two are TimeoutError from Python 3.11 on
    FutureTimeoutError,
    socket.gaierror,
    socket.herror,
    BrokenExecutor,
    MemoryError,
)
# Bases of HTTP clients' own errors, by name: nobody has to have them installed. Not all come from one of the above.
_INFRA_NAMES = {"httpx.TransportError", "aiohttp.client_exceptions.ClientConnectionError"}
_INFRA_ERRNO = {
    getattr(errno, name)
    for name in ("EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ENETRESET", "ENOBUFS", "EMFILE", "ENFILE")
    if hasattr(errno, name)
}
_GRACE_S = 1.0  # for a cancelled tool to tidy up


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call came to."""

    content: str
    fault: FaultKind | None = None
    attempts: int = 1  # how often the tool ran for it
    cached: bool = False  # another call's


async def attempt(tool: Tool, arguments: Mapping[str, Any], context: ToolContext, seconds: float) -> Answer:
    """Call the tool, for at most ``seconds``. Raises only `asyncio.CancelledError`, when it is cancelled itself."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()  # what asyncio.wait does, at a third of its price: this is on the way of every call
    # A task of its own tells a tool that cancels itself from a caller that cancels us, and can be left behind.
    task = loop.create_task(_answer(tool, arguments, context, over))
    timer = loop.call_later(seconds, _end, over)
    try:
        await over
    finally:
        timer.cancel()
        timed_out = not task.done()
        if timed_out:
            await _cancel(task, tool)
    if timed_out:
        _log.warning("tool %s did not answer within its deadline", tool.spec.name)
        return Answer(f"Error: {tool.spec.name} did not answer in time.", FaultKind.INFRA)
    if task.cancelled():
        _log.warning("tool %s cancelled itself", tool.spec.name)
        return unavailable(tool.spec.name)
    return task.result()


def _end(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


async def _answer(tool: Tool, arguments: Mapping[str, Any], context: ToolContext, over: asyncio.Future[None]) -> Answer:
    try:
        return Answer(to_text(await tool.call(arguments, context)))
    except (Exception, SystemExit) as error:  # noqa: BLE001 the boundary; SystemExit would end the event loop
        return _attribute(tool.spec.name, error)
    finally:
        _end(over)


def _attribute(name: str, error: BaseException) -> Answer:
    if isinstance(error, ToolError):
        _log.debug("tool %s refused", name, exc_info=error)
        kind = FaultKind.POLICY if isinstance(error, ToolArgumentsError) else FaultKind.TOOL
        return Answer(f"Error: {error}", kind)
    _log.warning("tool %s failed", name, exc_info=error)
    if any(_is_infra(link) for link in _chain(error)):
        return unavailable(name)
    return Answer(f"Error: {name} failed ({type(error).__name__}).", FaultKind.TOOL)


def unavailable(name: str, *, attempts: int = 1) -> Answer:
    """What the model is told where the tool is not to blame; the reason stands in the log."""
    return Answer(f"Error: {name} is not available now.", FaultKind.INFRA, attempts)


def _is_infra(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _INFRA_ERRNO:
        return True
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    return isinstance(error, _INFRA) or not names.isdisjoint(_INFRA_NAMES)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from or is a group of: clients wrap a refused connection in errors of their own."""
    links: list[BaseException] = [error]
    seen: set[int] = set()
    while links:
        link = links.pop()
        if id(link) not in seen:
            seen.add(id(link))
            yield link
            members = getattr(link, "exceptions", None)  # of an ExceptionGroup, or its backport for Python 3.10
            links += members if isinstance(members, tuple) else ()
            source = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
            links += (source,) if source else ()


async def _cancel(task: asyncio.Task[Answer], tool: Tool) -> None:
    task.cancel()
    await asyncio.wait((task,), timeout=_GRACE_S)
    if not task.done():
        _log.error("tool %s ignores its cancellation and keeps running", tool.spec.name)
