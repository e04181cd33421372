"""Closing is safe: a second time, without an open, and after an open that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from rlfactory_core.runner import LoopThread
from rlfactory_core.tasks import TaskRuntime
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import Evidence, describe_error, judged

_OPENING_S = 600.0  # what a task builds when it is opened is in its cache by now
Before = Callable[[TaskRuntime], Coroutine[Any, Any, None]]


class _InjectedError(Exception):
    """Raised by an open that is made to fail."""


def check(context: CheckContext) -> Iterator[Evidence]:
    """Closes the task with its tools and scorers: without an exception, and within `CheckContext.close_s`.

    The open task is the one that other checks have used, because opening one may be slow.
    """
    bench = context.bench  # if the task cannot be opened, another check reports it
    try:
        for what, before in _CASES.items():
            runtime, loop = (context.closed_bench().closed, LoopThread()) if before else (bench.closed, bench.loop)
            problem = _problem(runtime, loop, before, context.options.close_s)
            yield judged(
                problem
                and f"{what}: {problem}. close has to be safe at any time. Let it release what is open, release it "
                "once, and not wait for what may never happen.",
                f"{what}: closed, and closed again",
            )
            if problem:
                return
    finally:
        context.renew()


def _problem(runtime: TaskRuntime, loop: LoopThread, before: Before | None, close_s: float) -> str:
    """What goes wrong in two calls of close; empty if nothing does."""
    try:
        if before:
            loop.run(before(runtime), _OPENING_S, "opening the task")
        for number in ("first", "second"):
            loop.run(runtime.close(), close_s, f"the {number} close()")
    except Exception as error:  # noqa: BLE001 - the boundary to the task's open and close
        return describe_error(error)
    finally:
        if before:
            loop.close(min(1.0, close_s))
    return ""


async def _nothing(runtime: TaskRuntime) -> None:
    """The task is never opened."""


async def _open_that_fails(runtime: TaskRuntime) -> None:
    """The task opens, and then an error is raised."""
    task_open = runtime.task.open

    async def opened() -> None:
        await task_open()
        raise _InjectedError

    with patch.object(runtime.task, "open", opened), suppress(_InjectedError):
        await runtime.open()


async def _open_that_is_cancelled(runtime: TaskRuntime) -> None:
    opening = asyncio.ensure_future(runtime.open())
    await asyncio.sleep(0)  # lets the opening begin
    opening.cancel()
    await asyncio.wait((opening,))


_CASES: dict[str, Before | None] = {  # what happens to a new task before it is closed; None: the open task is closed
    "without an open": _nothing,
    "after an open that failed": _open_that_fails,
    "after an open that was cancelled": _open_that_is_cancelled,
    "after an open": None,
}
