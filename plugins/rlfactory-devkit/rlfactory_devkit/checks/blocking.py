"""Finds tools and environments that keep the event loop, by the time between two pauses of their coroutines."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rlfactory_core import ToolContext
from rlfactory_core.protocols import Env, EnvStart, EnvStep, Tool
from rlfactory_core.types import Message
from rlfactory_devkit.wrappers import EnvWrapper, ToolWrapper

T = TypeVar("T")

MOST_S = 0.05  # 64 attempts of a step wait for each other for three seconds then
_TIMES = 3  # that it has to be seen: a first call may load what it needs, and a busy machine stops any thread
_WAITED = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True, slots=True)
class Loop:
    """How long the code of a task has kept the event loop."""

    kept: dict[str, float] = field(default_factory=dict)  # seconds by name, each the longest

    @contextmanager
    def watched(self, name: str) -> Iterator[None]:
        began, waited = time.perf_counter(), _waited_s()
        try:
            yield
        finally:
            seconds = time.perf_counter() - began - (_waited_s() - waited)
            self.kept[name] = max(seconds, self.kept.get(name, 0.0))

    def tool(self, tool: Tool) -> Tool:
        return _WatchedTool(tool, self)

    def around(self, env: Env) -> Env:
        return _WatchedEnv(self).around(env)


def blockers(play: Callable[[Loop], object]) -> Iterator[str]:
    """What keeps the loop each time that ``play`` is called, in words; it is called again only if something does."""
    found: Mapping[str, float] = {}
    for number in range(_TIMES):
        loop = Loop()
        play(loop)
        found = {
            name: min(seconds, found.get(name, seconds))
            for name, seconds in loop.kept.items()
            if seconds > MOST_S and (number == 0 or name in found)
        }
        if not found:
            return
    for name, seconds in found.items():
        yield (
            f"{name} blocks the event loop for {seconds:.2g} s: meanwhile no other call goes on, no deadline holds. "
            "Write a tool as a plain function (def instead of async def), which runs in a thread; elsewhere await what "
            "it waits for, or call asyncio.to_thread."
        )


def _waited_s() -> float:
    """Seconds in which this thread could have run, and another one did; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        return int(_WAITED.read_text().split()[1]) / 1e9
    return 0.0


@dataclass(frozen=True, slots=True)
class _Watched(Awaitable[T]):
    """Waits for something else, and watches each of its steps on the event loop."""

    awaited: Awaitable[T]
    loop: Loop
    name: str

    def __await__(self) -> Generator[Any, Any, T]:
        steps: Any = self.awaited.__await__()
        error: BaseException | None = None
        while True:
            try:
                with self.loop.watched(self.name):
                    paused = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            error = None
            try:
                yield paused
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as thrown:  # noqa: BLE001 - such as a cancellation, which is passed on
                error = thrown


class _WatchedTool(ToolWrapper):
    def __init__(self, tool: Tool, loop: Loop) -> None:
        super().__init__(tool)
        self._loop = loop

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        return await _Watched(super().call(arguments, context), self._loop, f"tool {self.spec.name}")


class _WatchedEnv(EnvWrapper):
    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def _name(self, method: str) -> str:
        env: Any = self
        while isinstance(env, EnvWrapper):
            env = env._env
        return f"{type(env).__name__}.{method}"

    async def start(self) -> EnvStart:
        return await _Watched(super().start(), self._loop, self._name("start"))

    async def step(self, message: Message) -> EnvStep:
        return await _Watched(super().step(message), self._loop, self._name("step"))

    async def close(self) -> None:
        await _Watched(super().close(), self._loop, self._name("close"))
