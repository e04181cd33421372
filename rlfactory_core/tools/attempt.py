"""Makes one attempt at one tool call, with a deadline, and attributes a failure to its cause.

A tool's exceptions end here. The model never sees a traceback, a path or the text of an exception that its author did
not write for the model. These are for the user: in one line in the log and as the `Fault` of the trajectory.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextvars import copy_context
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import RlfactoryError, ToolArgumentsError, ToolError, ToolFailedError
from rlfactory_core.images import content_text
from rlfactory_core.protocols import Tool
from rlfactory_core.tools.watchdog import TASK_NAME
from rlfactory_core.types import FaultKind
from rlfactory_core.utils.aio import cancelled, forget_abandoned, in_time
from rlfactory_core.utils.display import RUNNING_TOOL, printable, said, shortened, without_credentials

_log = logging.getLogger(__name__)

_INFRA = (
    ConnectionError,  # ToolUnavailableError too
    TimeoutError,
    socket.gaierror,
    socket.herror,
    BrokenExecutor,
    MemoryError,
)
# Base classes of HTTP clients' errors, by name, because the packages may be missing. Not all derive from those above.
_INFRA_NAMES = {"httpx.TransportError", "aiohttp.client_exceptions.ClientConnectionError"}
_STATUS_NAMES = {  # of errors for an HTTP status that means failure
    "httpx.HTTPStatusError",
    "requests.exceptions.HTTPError",
    "aiohttp.client_exceptions.ClientResponseError",
    "urllib.error.HTTPError",
}
_INFRA_ERRNO = {errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET}
_INFRA_ERRNO |= {errno.ENOBUFS, errno.EMFILE, errno.ENFILE}
MAX_ERROR_CHARS = 1 << 20  # of a `ToolError` that the model reads; the limit on results cuts it further
_CLOSE_S = 30.0  # for a tool to close, which may have to end processes


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a call."""

    content: str
    fault: FaultKind | None = None
    attempts: int = 1  # how often the tool ran
    reason: str = ""  # why the call has no result; shown to the user, hidden from the model
    cached: bool = False  # whether it is the answer to another call


async def attempt(tool: Tool, arguments: Mapping[str, Any], context: ToolContext, seconds: float) -> Answer:
    """Call the tool for at most ``seconds``. Raises only `asyncio.CancelledError`, when the caller is cancelled."""
    name, scope = tool.spec.name, copy_context()
    scope.run(RUNNING_TOOL.set, name)
    deadline, task = asyncio.timeout(seconds), None
    try:
        async with deadline:
            # In a task of its own, a tool that cancels itself differs from a cancelled caller, and can be abandoned.
            task = asyncio.create_task(tool.call(arguments, context), name=TASK_NAME + name, context=scope)
            return Answer(content_text(await asyncio.shield(task)))
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if task is None or not task.cancelled() or (caller is not None and caller.cancelling()):
            raise
        reason = "it cancelled itself"
        _log.warning("tool %s: %s", name, reason)
        return unavailable(name, reason)
    except Exception as error:  # noqa: BLE001 the boundary to the tool's code
        if not deadline.expired():
            return _attribute(name, error)
        reason = f"no answer within {seconds:.3g} s"
        _log.warning("tool %s: %s", name, reason)
        return Answer(f"Error: {name} did not answer in time.", FaultKind.INFRA, reason=reason)
    finally:
        if task is not None and not task.done() and not await cancelled(task):
            _log.error("tool %s ignores its cancellation and keeps running", name)


def _attribute(name: str, error: BaseException) -> Answer:
    if isinstance(error, ToolError):
        _log.debug("tool %s refused", name, exc_info=error)
        kind = FaultKind.POLICY if isinstance(error, ToolArgumentsError) else FaultKind.TOOL
        return Answer(f"Error: {said(error, MAX_ERROR_CHARS)}", kind)
    reason = error_line(error)
    _log.warning("tool %s failed: %s", name, reason)
    _log.debug("tool %s failed", name, exc_info=error)
    if is_infra_error(error):
        return unavailable(name, reason)
    how = "" if isinstance(error, ToolFailedError) else f" ({type(error).__name__})"
    return Answer(f"Error: {name} failed{how}.", FaultKind.TOOL, reason=reason)


def unavailable(name: str, reason: str, *, attempts: int = 1) -> Answer:
    """The answer to the model after an infra fault."""
    return Answer(f"Error: {name} is not available now.", FaultKind.INFRA, attempts, reason)


def is_infra_error(error: BaseException) -> bool:
    """Whether an exception of a tool or agent means that a service is down, and not that the code is wrong."""
    return any(_is_infra(link) for link in _chain(error))


def error_line(error: BaseException) -> str:
    """An exception in one line, such as ``KeyError: 'city' (weather.py:12)``; rlfactory's own without file and line."""
    lines = [line.strip() for line in said(error, MAX_ERROR_CHARS).strip().splitlines()] or [""]
    text = lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"
    text = printable(without_credentials(shortened(text, 400)))
    if isinstance(error, RlfactoryError):
        return text or type(error).__name__
    if isinstance(error, ValueError) and text.startswith("signal only works in main thread"):
        text += "; write the tool as an async function, or limit it by deadline_s"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"


def _is_infra(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _INFRA_ERRNO:
        return True
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    if not names.isdisjoint(_STATUS_NAMES):
        return _is_servers(error)
    return isinstance(error, _INFRA) or not names.isdisjoint(_INFRA_NAMES)


def _is_servers(error: BaseException) -> bool:
    """Whether an HTTP status means that the server is overloaded or broken, and not that the request is wrong."""
    response = getattr(error, "response", None)
    places = [(response, "status_code"), (error, "status"), (error, "code")]  # httpx and requests; aiohttp; urllib
    status = next((found for thing, name in places if isinstance(found := getattr(thing, name, None), int)), 0)
    return status >= 500 or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, its causes and the members of its group, because clients wrap a refused connection in own errors."""
    links: list[BaseException] = [error]
    seen: set[int] = set()
    while links:
        link = links.pop()
        if id(link) not in seen:
            seen.add(id(link))
            yield link
            members = getattr(link, "exceptions", None)  # of an ExceptionGroup
            links += members if isinstance(members, tuple) else ()
            source = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
            links += (source,) if source else ()


async def close_all(tools: Sequence[Tool]) -> None:
    """Close the tools, each for at most `_CLOSE_S`, also if one fails; raises nothing of theirs."""
    closings = (in_time(tool.close(), _CLOSE_S, f"tool {tool.spec.name}") for tool in tools)
    for tool, error in zip(tools, await asyncio.gather(*closings, return_exceptions=True), strict=True):
        if isinstance(error, TimeoutError):
            _log.warning("tool %s did not close within %g s", tool.spec.name, _CLOSE_S)
        elif isinstance(error, Exception):
            _log.warning("tool %s did not close", tool.spec.name, exc_info=error)
    forget_abandoned()
