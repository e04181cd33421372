"""An episode that is cancelled leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any
from unittest.mock import patch

from rlfactory_core import ToolContext
from rlfactory_core.protocols import EnvStep, Tool
from rlfactory_core.runner import TaskBench, oracle, script
from rlfactory_core.tiny import answer_text
from rlfactory_core.types import Message, Sample, ToolCall, Trajectory
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import Evidence, seen, wrong
from rlfactory_devkit.examples import example_calls
from rlfactory_devkit.leaks import ResourceSnapshot, noted_files, still_there
from rlfactory_devkit.wrappers import EnvWrapper, ToolWrapper

_GRACE_S = 3.0  # for tasks, processes and threads to end


async def _passes(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


_DELAYS: tuple[Callable[[], Awaitable[None]], ...] = (  # between the start of a tool call and the cancellation
    *(partial(_passes, number) for number in (0, 1, 3, 10)),  # iterations of the event loop
    partial(asyncio.sleep, 0.05),  # long enough for a request or a process to start
)


class _StopPoint(EnvWrapper):
    """The place in an episode at which the check cancels it; `reached` is set when the episode gets there.

    If it ``stops``, it waits for ever once the environment has answered, as an episode does for its model.
    """

    def __init__(self, *, stops: bool = False) -> None:
        self.reached = asyncio.Event()
        self.closed = 0  # how often the environment was closed
        self._stops = stops

    async def step(self, message: Message) -> EnvStep:
        step = await super().step(message)
        if self._stops:
            self.reached.set()
            await asyncio.Event().wait()
        return step

    async def close(self) -> None:
        self.closed += 1
        await super().close()


class _AnnouncingTool(ToolWrapper):
    """A tool that sets the stop point's event when it is called."""

    def __init__(self, tool: Tool, stop_point: _StopPoint) -> None:
        super().__init__(tool)
        self._stop_point = stop_point

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self._stop_point.reached.set()
        return await super().call(arguments, context)

    async def close(self) -> None:
        """The task's own manager closes the tool."""


def check(context: CheckContext) -> Iterator[Evidence]:
    """Cancels episodes between turns and inside each tool.

    Afterwards no asyncio task may be left. Once the task is closed, no process, thread, open file or newly written
    file may be left.
    """
    played = context.oracle()
    before = ResourceSnapshot.now()
    with _own_temporary_folder(), contextlib.ExitStack() as stack:
        bench = context.closed_bench()
        bench.__enter__()
        stack.callback(context.close_quietly, bench)
        # One normal pass first, so that resources which all episodes share exist before the cancellations.
        bench.play(oracle(bench.task), context.some(), deadline_s=context.options.deadline_s)
        calls = {call.name: call for call in example_calls(bench.tools, played)}
        opened = ResourceSnapshot.now()
        with noted_files() as made:
            cancelled, problems = bench.run(_cancel_all(context, bench, calls), 600.0, "cancelling")
            stack.close()
            left = _left(before, made)
    for problem in dict.fromkeys([*problems, *left]):
        yield wrong(f"{problem}. Release it in a finally block, and do not catch asyncio.CancelledError.")
    grown = ResourceSnapshot.now().channels - max(before.channels, opened.channels)
    if grown >= cancelled:
        yield wrong(f"{grown} sockets or pipes are left open after {cancelled} cancelled episodes.")
    if not problems and not left:
        yield seen(f"{cancelled} episodes cancelled between turns and in {len(calls)} tools: nothing is left")


async def _cancel_all(context: CheckContext, bench: TaskBench, calls: Mapping[str, ToolCall]) -> tuple[int, list[str]]:
    """The number of cancelled episodes, and the problems that were found."""
    running, sample = asyncio.all_tasks(), context.some()[0]
    count, problems = 0, []
    agent = bench.runtime.agents is not None
    for call in (None, *(() if agent else calls.values())):
        where = f"in the tool {call.name}" if call else "in the agent" if agent else "between turns"
        for delay in _DELAYS if call or agent else _DELAYS[:1]:
            stop_point = _StopPoint(stops=call is None)
            play = _announced(bench, sample, call, stop_point)
            problem = await _cancelled(play, stop_point, delay, context.options.deadline_s)
            count += 1
            problems += [f"cancelled {where}, {problem}"] if problem else []
        names = await _tasks_left(running)
        problems += [f"after a cancellation {where} the asyncio task {name} is left" for name in names]
        running |= asyncio.all_tasks()
    return count, problems


def _announced(
    bench: TaskBench, sample: Sample, call: ToolCall | None, stop_point: _StopPoint
) -> Coroutine[Any, Any, Trajectory]:
    """An episode that gets to the stop point in the tool that is called, or where its agent or environment waits."""
    if call:
        manager = bench.manager(partial(_AnnouncingTool, stop_point=stop_point))
        return bench.episode(script(call, answer_text("42")), sample, manager=manager, around=stop_point.around)
    policy = oracle(bench.task)
    if bench.runtime.agents is None:
        return bench.episode(policy, sample, around=stop_point.around)

    def announce(*asked: Any) -> Message | str:
        stop_point.reached.set()
        return policy(*asked)

    stop_point.closed = 1  # there is no environment
    return bench.episode(announce, sample)


async def _cancelled(
    play: Coroutine[Any, Any, Trajectory],
    stop_point: _StopPoint,
    delay: Callable[[], Awaitable[None]],
    deadline_s: float,
) -> str:
    playing, reached = asyncio.ensure_future(play), asyncio.ensure_future(stop_point.reached.wait())
    await asyncio.wait((playing, reached), timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    await delay()
    playing.cancel()
    await asyncio.wait((playing,), timeout=deadline_s)
    if not playing.done():
        return f"the episode is not over after {deadline_s:g} s"
    if not playing.cancelled() and (error := playing.exception()) is not None:
        return f"the episode raises {type(error).__name__}: {error}"
    return "" if stop_point.closed == 1 else f"the environment is closed {stop_point.closed} times"


async def _tasks_left(running: set[asyncio.Task[Any]]) -> list[str]:
    """The names of asyncio tasks that do not end in time."""
    until = time.monotonic() + _GRACE_S
    while (left := asyncio.all_tasks() - running) and time.monotonic() < until:
        await asyncio.wait(left, timeout=0.1)
    return sorted({getattr(task.get_coro(), "__qualname__", repr(task)) for task in left})


def _left(before: ResourceSnapshot, made: set[str]) -> list[str]:
    """What is left of the episodes, in words; processes that are left are killed."""
    until = time.monotonic() + _GRACE_S
    while (now := ResourceSnapshot.now()).left_since(before) and time.monotonic() < until:
        time.sleep(0.05)
    for number in now.children:
        if number not in before.children:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
    files = [f"the file {name}" for name in still_there(made)]
    return [
        f"once the task is closed, {what} is left of cancelled episodes" for what in (*now.left_since(before), *files)
    ]


@contextlib.contextmanager
def _own_temporary_folder() -> Iterator[None]:
    """Another temporary folder for this process and its children; it is removed at the end with all files in it."""
    with (
        tempfile.TemporaryDirectory(prefix="rlfactory-check-") as folder,
        patch.dict(os.environ, TMPDIR=folder),
        patch.object(tempfile, "tempdir", folder),
    ):
        yield
