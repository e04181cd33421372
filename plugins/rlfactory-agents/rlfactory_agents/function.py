"""Runs an agent that is a Python function on an event loop of its own.

A user's agent may block, for example by a synchronous SDK. On the loop of the gateway it would then wait for itself.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from rlfactory_core.gateway import AgentError, Endpoint
from rlfactory_core.types import Sample
from rlfactory_core.utils.threads import BlockingPool

_log = logging.getLogger(__name__)
_GRACE_S = 2.0  # for a cancelled agent to end


class FunctionAgents:
    """An `Agent` made of a function ``(sample, endpoint)``, async or not; `close` ends its thread."""

    def __init__(self, function: Callable[[Sample, Endpoint], Any]) -> None:
        self._function = function
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool = BlockingPool("agent")

    async def __call__(self, sample: Sample, endpoint: Endpoint) -> Any:
        """Raises what the agent raises; `AgentError` if it ends itself."""
        ended: Future[asyncio.Task[Any]] = Future()
        tasks: list[asyncio.Task[Any]] = []

        def start() -> None:
            tasks.append(loop.create_task(self._run(sample, endpoint)))
            tasks[0].add_done_callback(ended.set_result)

        loop = self._started()
        loop.call_soon_threadsafe(start)
        waiting = asyncio.wrap_future(ended)
        try:
            return (await asyncio.shield(waiting)).result()
        except asyncio.CancelledError:
            # In the loop, where the task may have been made only now.
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            if not (await asyncio.wait((waiting,), timeout=_GRACE_S))[0]:
                _log.error("an agent ignores its cancellation and keeps running")
            raise

    async def close(self) -> None:
        """Agents that are still running are abandoned."""
        loop, self._loop = self._loop, None
        self._pool.close()
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_serve, args=(self._loop,), name="rlfactory-agents", daemon=True).start()
        return self._loop

    async def _run(self, sample: Sample, endpoint: Endpoint) -> Any:
        try:
            if inspect.iscoroutinefunction(self._function):
                return await self._function(sample, endpoint)
            found = await self._pool.run(partial(self._function, sample, endpoint))
            return await found if inspect.isawaitable(found) else found
        except (SystemExit, KeyboardInterrupt) as error:  # would end the loop
            raise AgentError(f"it ended itself by {type(error).__name__}({error})") from error


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
