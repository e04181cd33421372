"""Runs an agent that is a Python function on an event loop of its own.

A user's agent may block, for example by a synchronous SDK. On the loop of the gateway it would then wait for itself.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from rlfactory_core.gateway.agent import AgentError
from rlfactory_core.gateway.server import Endpoint
from rlfactory_core.types import Sample

_log = logging.getLogger(__name__)
_GRACE_S = 2.0  # for a cancelled agent to end
AT_ONCE = 256  # agents that are not async


class FunctionAgents:
    """An `Agent` made of a function ``(sample, endpoint)``, async or not; `close` ends its thread."""

    def __init__(self, function: Callable[[Sample, Endpoint], Any]) -> None:
        self._function = function
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool = ThreadPoolExecutor(AT_ONCE, "rlfactory-agent")

    async def __call__(self, sample: Sample, endpoint: Endpoint) -> Any:
        """Raises what the agent raises; `AgentError` if it ends itself."""
        running = asyncio.run_coroutine_threadsafe(self._run(sample, endpoint), self._started())
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            await asyncio.wait_for(asyncio.to_thread(_wait, running), None)
            raise

    async def close(self) -> None:
        """Agents that are still running are abandoned."""
        loop, self._loop = self._loop, None
        self._pool.shutdown(wait=False, cancel_futures=True)
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_default_executor(self._pool)
            threading.Thread(target=_serve, args=(self._loop,), name="rlfactory-agents", daemon=True).start()
        return self._loop

    async def _run(self, sample: Sample, endpoint: Endpoint) -> Any:
        try:
            if inspect.iscoroutinefunction(self._function):
                return await self._function(sample, endpoint)
            call = partial(self._function, sample, endpoint)
            found = await asyncio.get_running_loop().run_in_executor(self._pool, call)
            return await found if inspect.isawaitable(found) else found
        except (SystemExit, KeyboardInterrupt) as error:  # would end the loop
            raise AgentError(f"it ended itself by {type(error).__name__}({error})") from error


def _wait(running: Future[Any]) -> None:
    try:
        running.exception(_GRACE_S)
    except (CancelledError, TimeoutError):
        if not running.cancelled():
            _log.error("an agent ignores its cancellation and keeps running")


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
