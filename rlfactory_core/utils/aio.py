"""Helpers for asyncio."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")

GRACE_S = 1.0  # for what is cancelled to clean up
_abandoned: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()  # tasks that go on after their cancellation


async def gather_all(works: Iterable[Awaitable[Result]]) -> list[Result]:
    """All results in order; if one raises, the others are cancelled and awaited."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def cancelled(task: asyncio.Task[Any]) -> bool:
    """Cancel a task; whether it has ended `GRACE_S` later. If not, it is abandoned."""
    task.cancel()
    await asyncio.wait((task,), timeout=GRACE_S)
    if not task.done():
        _abandoned.add(task)
    return task.done()


def forget_abandoned() -> None:
    """Keep the end of `asyncio.run`, which waits for every task that it knows, from waiting for what never ends."""
    loop = asyncio.get_running_loop()
    for task in [task for task in _abandoned if task.get_loop() is loop]:
        _abandoned.discard(task)
        if not task.done():
            asyncio.tasks._unregister_task(task)
            task._log_destroy_pending = False  # type: ignore[attr-defined] # it has been logged
