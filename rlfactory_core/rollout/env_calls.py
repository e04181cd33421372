"""Calls of an environment's methods: checked against the contract, and with time limits."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from math import isinf
from typing import Any, TypeVar

from rlfactory_core.errors import BackendError, PluginError
from rlfactory_core.protocols import Env
from rlfactory_core.utils.aio import cancelled, end

T = TypeVar("T")
CLOSE_S = 30.0  # for an environment to close, or to obey its cancellation
_log = logging.getLogger(__name__)


class TimedEnv:
    """One environment with its time limits.

    Args:
        seconds: time limit for ``start`` and for each ``step``; the environment's ``deadline_s`` sets another.
    """

    def __init__(self, env: Env, seconds: float) -> None:
        self.env, self.name = env, type(env).__name__
        own = getattr(env, "deadline_s", None)
        seconds = seconds if own is None else own
        self._seconds = None if isinf(seconds) else seconds
        self.overdue: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left_behind = False

    @property
    def is_timed(self) -> bool:
        """Whether its start and its steps have a time limit."""
        return self._seconds is not None

    async def watch(self, playing: Awaitable[None]) -> None:
        """Await ``playing``, which makes all calls and closes the environment.

        All of this is in one task, since an environment may have to leave what it has entered in the same one. If a
        call ignores its cancellation, the task is left behind, and this raises `BackendError`.
        """
        task = asyncio.ensure_future(playing)
        try:
            await asyncio.wait((task, self.overdue), return_when=asyncio.FIRST_COMPLETED)
        finally:
            grace_s = 0.0 if self.overdue.done() else 2 * CLOSE_S  # for a step, and to close
            self.left_behind = not task.done() and not await cancelled(task, grace_s)
            if self.left_behind:
                _log.error("the environment %s ignores its cancellation and keeps running", self.name)
        if self.left_behind or (self.overdue.done() and task.cancelled()):
            raise BackendError(f"{self.name} has not ended in time, and ignores its cancellation")
        task.result()

    async def call(self, method: str, expected: type[T], *arguments: Any) -> T:
        """As `ask_env`; raises `BackendError` if it takes longer than its time limit."""
        seconds = CLOSE_S if method == "close" else self._seconds
        overdue_s = (seconds or 0.0) + CLOSE_S
        overdue = asyncio.get_running_loop().call_later(overdue_s, end, self.overdue)
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                found = await ask_env(self.env, method, expected, *arguments)
        except TimeoutError as late:
            if not deadline.expired():  # the environment's own
                raise
            raise BackendError(f"{self.name}.{method} has not ended after {seconds:g} s") from late
        finally:
            overdue.cancel()
        if self.left_behind:
            raise asyncio.CancelledError
        return found

    async def close(self) -> None:
        """Close the environment, unless it was left behind; what it raises for want of a service is logged."""
        if self.left_behind:
            return
        try:
            await self.call("close", object)
        except (BackendError, TimeoutError) as error:
            _log.warning("an environment did not close: %s", str(error) or type(error).__name__)


async def ask_env(env: Env, name: str, expected: type[T], *arguments: Any) -> T:
    """Call a method of an environment, whose author may have broken the contract.

    Raises:
        PluginError: the method is missing, is not async, or returns something else.
    """
    method = getattr(env, name, None)
    if method is None:
        raise PluginError(
            f"The environment is {env!r:.80}, which has no method {name}; expected async methods start, step and close."
        )
    awaitable: Awaitable[Any] = method(*arguments)
    if not inspect.isawaitable(awaitable):
        raise PluginError(f"{type(env).__name__}.{name} is not async; write `async def {name}(…)`.")
    value = await awaitable
    if not isinstance(value, expected):
        raise PluginError(f"{type(env).__name__}.{name} returned {value!r:.80}; expected {expected.__name__}.")
    return value
