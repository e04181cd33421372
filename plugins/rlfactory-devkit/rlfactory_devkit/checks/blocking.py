"""Finds tools and environments that keep the event loop, by the time between two pauses of their coroutines."""

from __future__ import annotations

import time
import types
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rlfactory_core.protocols import Env, Tool
from rlfactory_devkit.wrappers import EnvWrapper, ToolWrapper

T = TypeVar("T")

MOST_S = 0.05  # 64 attempts of a step wait for each other for three seconds then
_TIMES = 3  # that it has to be seen: a first call may load what it needs, and a busy machine stops any thread
_WAITED = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True, slots=True)
class LoopTimes:
    """How long the code of a task has kept the event loop."""

    seconds: dict[str, float] = field(default_factory=dict)  # by name, each the longest

    def tool(self, tool: Tool) -> Tool:
        return ToolWrapper(tool, lambda _, called: self._watched(f"tool {tool.spec.name}", called))

    def env(self, env: Env) -> Env:
        return EnvWrapper(env, lambda method, asked: self._watched(f"{type(env).__name__}.{method}", asked))

    @types.coroutine
    def _watched(self, name: str, awaited: Awaitable[T]) -> Generator[Any, Any, T]:
        """Await something else, and measure each of its steps on the event loop."""
        steps: Any = awaited.__await__()
        go_on = partial(steps.send, None)
        while True:
            began, waited = time.perf_counter(), _waited_s()
            try:
                paused = go_on()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                seconds = time.perf_counter() - began - (_waited_s() - waited)
                self.seconds[name] = max(seconds, self.seconds.get(name, 0.0))
            try:
                yield paused
                go_on = partial(steps.send, None)
            except BaseException as thrown:  # noqa: BLE001 - such as a cancellation, which is passed on
                go_on = partial(steps.throw, thrown)


def blockers(play: Callable[[LoopTimes], object]) -> Iterator[str]:
    """What keeps the loop each time that ``play`` is called, in words; it is called again only if something does."""
    found: Mapping[str, float] = {}
    for number in range(_TIMES):
        times = LoopTimes()
        play(times)
        found = {
            name: min(seconds, found.get(name, seconds))
            for name, seconds in times.seconds.items()
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
