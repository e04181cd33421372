"""Helpers for asyncio."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

__all__ = ["gather_all", "in_time"]

Result = TypeVar("Result")
_log = logging.getLogger(__name__)

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


def end(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


async def cancelled(task: asyncio.Task[Any], grace_s: float = 0.0) -> bool:
    """Cancel a task; whether it has ended ``grace_s`` later, 0: `GRACE_S`. If not, it is abandoned."""
    task.cancel()
    await asyncio.wait((task,), timeout=grace_s or GRACE_S)
    if not task.done():
        _abandoned.add(task)
    return task.done()


async def in_time(work: Awaitable[Result], seconds: float | None, name: str) -> Result:
    """As `asyncio.wait_for`, but without waiting for work that ignores its cancellation, which is logged."""
    if seconds is None:
        return await work
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,), timeout=seconds)
    finally:
        if (late := not task.done()) and not await cancelled(task):
            _log.error("%s ignores its cancellation and keeps running", name)
    if late:
        raise TimeoutError
    return task.result()


def forget_abandoned() -> None:
    """Keep the end of `asyncio.run`, which waits for every task that it knows, from waiting for what never ends."""
    loop = asyncio.get_running_loop()
    for task in [task for task in _abandoned if task.get_loop() is loop]:
        _abandoned.discard(task)
        if not task.done():
            asyncio.tasks._unregister_task(task)
            task._log_destroy_pending = False  # type: ignore[attr-defined] # it has been logged
