"""Closing is safe: once more, without an open, and after one that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from rlfactory_core.task_runtime import TaskRuntime
from rlfactory_core.testing.checks.result import Evidence, seen, wrong
from rlfactory_core.testing.checks.subject import Subject
from rlfactory_core.testing.checks.telling import told
from rlfactory_core.testing.loop import LoopThread

_OPENING_S = 600.0  # of a task that builds something; it is in its cache by now


class _InjectedError(Exception):
    """An open that fails."""


def check(subject: Subject) -> Iterator[Evidence]:
    """The task with its tools and scorers is closed without an exception, and within `Subject.close_s`.

    The open one is the task that other checks have played, if they have: what opens slowly is opened once less.
    """
    bench = subject.bench  # a task that cannot be opened is another check's affair
    for what, before in _CASES.items():
        problem = _made_and_closed(subject, before)
        yield _evidence(what, problem)
        if problem:
            return
    try:
        yield _evidence("after an open", _closed_twice(bench.runtime, bench.loop, subject.close_s))
    finally:
        subject.renew()


def _evidence(what: str, problem: str) -> Evidence:
    if not problem:
        return seen(f"{what}: closed, and closed again")
    return wrong(
        f"{what}: {problem}. close has to be safe at any time: let it look at what is really open, let go of it once, "
        "and not wait for what may never come."
    )


def _made_and_closed(subject: Subject, before: Callable[[TaskRuntime], Coroutine[Any, Any, None]]) -> str:
    """What went wrong with another one of the same task."""
    runtime, loop = subject.closed_bench().runtime, LoopThread()
    try:
        loop.run(before(runtime), _OPENING_S, "opening the task")
        return _closed_twice(runtime, loop, subject.close_s)
    except Exception as error:  # noqa: BLE001 - the boundary to the task's open
        return told(error)
    finally:
        loop.close(min(1.0, subject.close_s))


def _closed_twice(runtime: TaskRuntime, loop: LoopThread, close_s: float) -> str:
    """What went wrong."""
    try:
        for number in ("first", "second"):
            loop.run(runtime.close(), close_s, f"the {number} close()")
    except Exception as error:  # noqa: BLE001 - the boundary to the task's close
        return told(error)
    return ""


async def _nothing(runtime: TaskRuntime) -> None:
    """It was never opened."""


async def _open_that_fails(runtime: TaskRuntime) -> None:
    """Behind the task's own part of it."""

    async def opened(*_: Any, **__: Any) -> None:
        raise _InjectedError

    runtime.rewards.open = opened  # type: ignore[method-assign]
    try:
        await runtime.open()
    except _InjectedError:
        return


async def _open_that_is_cancelled(runtime: TaskRuntime) -> None:
    opening = asyncio.ensure_future(runtime.open())
    await asyncio.sleep(0)  # it has begun
    opening.cancel()
    await asyncio.wait((opening,))


_CASES: dict[str, Callable[[TaskRuntime], Coroutine[Any, Any, None]]] = {
    "without an open": _nothing,
    "after an open that failed": _open_that_fails,
    "after an open that was cancelled": _open_that_is_cancelled,
}
