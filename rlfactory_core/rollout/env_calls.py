"""Calls of an environment's methods: checked against the contract, and with deadlines."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from typing import Any, TypeVar

from rlfactory_core.errors import BackendError, PluginError
from rlfactory_core.protocols import Env
from rlfactory_core.rollout.tool_env import OwnDeadlines, ToolEnv
from rlfactory_core.types import StopReason
from rlfactory_core.utils.aio import cancelled, end

T = TypeVar("T")
CLOSE_S = 30.0  # for an environment to close, or to obey its cancellation
_log = logging.getLogger(__name__)


class EnvCalls:
    """The methods of one environment, each of which raises as `ask_env` does.

    Args:
        seconds: that its start and each step may take before they raise `BackendError`. Not if it has `OwnDeadlines`;
            a class made of `ToolEnv` with its own start or step has none, unless it names them.
    """

    def __init__(self, env: Env, seconds: float) -> None:
        self._env, self.name = env, type(env).__name__
        own = [getattr(type(env), name, None) for name in ("start", "step")] != [ToolEnv.start, ToolEnv.step]
        told = OwnDeadlines in type(env).__bases__ if isinstance(env, ToolEnv) else isinstance(env, OwnDeadlines)
        self._seconds = seconds if own and not told else None
        self._overdue: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stop: StopReason | None = None  # of the episode, once it is over
        self._left_behind = False

    async def during(self, playing: Awaitable[StopReason]) -> StopReason:
        """What ``playing`` returns, which makes the calls; then the environment is closed.

        All of this is in one task, since an environment may have to leave what it has entered in the same one. If a
        call ignores its cancellation, the task is left behind, and this raises `BackendError`.
        """
        if self._seconds is None:
            return await self._closed_after(playing)
        task = asyncio.ensure_future(self._closed_after(playing))
        try:
            await asyncio.wait((task, self._overdue), return_when=asyncio.FIRST_COMPLETED)
        finally:
            grace_s = 0.0 if self._overdue.done() else 2 * CLOSE_S  # for a step, and to close
            self._left_behind = not task.done() and not await cancelled(task, grace_s)
            if self._left_behind:
                _log.error("the environment %s ignores its cancellation and keeps running", self.name)
        if not self._left_behind and not (self._overdue.done() and task.cancelled()):
            return task.result()
        if self._stop is None:
            raise BackendError(f"{self.name} has not ended in time, and ignores its cancellation")
        return self._stop  # it only does not close, which takes nothing from the episode

    async def _closed_after(self, playing: Awaitable[StopReason]) -> StopReason:
        try:
            self._stop = await playing
        finally:
            try:
                if not self._left_behind:
                    await self.call("close", object)
            except (BackendError, TimeoutError) as error:
                _log.warning("an environment did not close: %s", str(error) or type(error).__name__)
        return self._stop

    async def call(self, name: str, expected: type[T], *arguments: Any) -> T:
        seconds = CLOSE_S if name == "close" else self._seconds
        sure = asyncio.get_running_loop().call_later((seconds or 0.0) + CLOSE_S, end, self._overdue)
        try:
            async with asyncio.timeout(seconds) as deadline:
                found = await ask_env(self._env, name, expected, *arguments)
        except TimeoutError as error:
            if not deadline.expired():  # the environment's own
                raise
            raise BackendError(f"{self.name}.{name} has not ended after {seconds:g} s") from error
        finally:
            sure.cancel()
        if self._left_behind:
            raise asyncio.CancelledError
        return found


async def ask_env(env: Env, name: str, expected: type[T], *arguments: Any) -> T:
    """Call a method of an environment, which an author may have written otherwise than the contract says.

    Raises:
        PluginError: the method is missing, is not async, or returns something else.
    """
    method = getattr(env, name, None)
    if method is None:
        raise PluginError(
            f"The environment is {env!r:.80}, which has no method {name}; expected async methods start, step and close."
        )
    given = method(*arguments)
    if not inspect.isawaitable(given):
        raise PluginError(f"{type(env).__name__}.{name} is not async; write `async def {name}(…)`.")
    value = await given
    if not isinstance(value, expected):
        raise PluginError(f"{type(env).__name__}.{name} returned {value!r:.80}; expected {expected.__name__}.")
    return value
