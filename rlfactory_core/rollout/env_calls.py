"""Calls of an environment's methods: checked against the contract, and with time limits."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from math import isinf
from types import TracebackType
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
        self.seconds = None if isinf(seconds) else seconds  # of start and step; None: they have no limit
        self.overdue: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left_behind = False

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

    async def close(self) -> None:
        """Close the environment, unless it was left behind; what it raises for want of a service is logged."""
        if self.left_behind:
            return
        try:
            async with Limit(self, "close"):
                await ask_env(self.env, "close", object)
        except (BackendError, TimeoutError) as error:
            _log.warning("an environment did not close: %s", str(error) or type(error).__name__)


class Limit:
    """Limits the time of one call; too late, it raises `BackendError`.

    A class, because a generator cannot be dropped while its call hangs for ever.
    """

    def __init__(self, env: TimedEnv, method: str) -> None:
        self._env, self._method = env, method
        self._seconds = CLOSE_S if method == "close" else env.seconds
        self._deadline = asyncio.timeout(self._seconds)
        overdue_s = (self._seconds or 0.0) + CLOSE_S
        self._overdue = asyncio.get_running_loop().call_later(overdue_s, end, env.overdue)

    async def __aenter__(self) -> None:
        await self._deadline.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._overdue.cancel()
        try:
            await self._deadline.__aexit__(kind, error, trace)
        except TimeoutError as late:  # not the environment's own, which passes through
            raise BackendError(f"{self._env.name}.{self._method} has not ended after {self._seconds:g} s") from late
        if self._env.left_behind and error is None:
            raise asyncio.CancelledError


async def ask_env(env: Env, name: str, expected: type[T], *arguments: Any) -> T:
    """Call a method of an environment, whose author may have broken the contract.

    Raises:
        PluginError: the method is missing, is not async, or returns something else.
    """
    return checked(env, name, expected, await called(env, name, *arguments))


def called(env: Env, name: str, *arguments: Any) -> Awaitable[Any]:
    """A method's awaitable; raises a `PluginError` if it is missing or not async."""
    method = getattr(env, name, None)
    if method is None:
        raise PluginError(
            f"The environment is {env!r:.80}, which has no method {name}; expected async methods start, step and close."
        )
    awaitable: Awaitable[Any] = method(*arguments)
    if not inspect.isawaitable(awaitable):
        raise PluginError(f"{type(env).__name__}.{name} is not async; write `async def {name}(…)`.")
    return awaitable


def checked(env: Env, name: str, expected: type[T], value: Any) -> T:
    """A method's result; raises a `PluginError` if it is something else."""
    if not isinstance(value, expected):
        raise PluginError(f"{type(env).__name__}.{name} returned {value!r:.80}; expected {expected.__name__}.")
    return value
