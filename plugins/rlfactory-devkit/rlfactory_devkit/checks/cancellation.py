"""An episode that is cancelled leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from unittest.mock import patch

import psutil

from rlfactory_core.runner import TaskBench, oracle, script
from rlfactory_core.tiny import answer_text
from rlfactory_core.types import Message, Sample, ToolCall, Trajectory
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import Evidence, seen, wrong
from rlfactory_devkit.examples import example_calls
from rlfactory_devkit.leaks import ResourceSnapshot, noted_files, still_there
from rlfactory_devkit.wrappers import EnvWrapper, ToolWrapper

_GRACE_S = 3.0  # for tasks, processes and threads to end
_PAUSES_S: tuple[tuple[float, ...], ...] = ((), (0,), (0,) * 3, (0,) * 10, (0.05,))
"""Between the start of a tool call and the cancellation: iterations of the event loop, and time for a process to start.
"""


class _StopPoint:
    """The place in an episode at which the check cancels it; `reached` is set when the episode gets there."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.closed = 0  # how often the environment was closed

    async def in_tool(self, _: str, called: Awaitable[str]) -> str:
        self.reached.set()
        return await called

    async def in_env(self, method: str, asked: Awaitable[Any], *, stops: bool) -> Any:
        """If it ``stops``, wait for ever once the environment has answered, as an episode does for its model."""
        self.closed += method == "close"
        answer = await asked
        if stops and method == "step":
            self.reached.set()
            await asyncio.Event().wait()
        return answer


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
            left = [*_left(before), *(f"the file {name}" for name in still_there(made))]
            problems += [f"once the task is closed, {what} is left of cancelled episodes" for what in left]
    for problem in dict.fromkeys(problems):
        yield wrong(f"{problem}. Release it in a finally block, and do not catch asyncio.CancelledError.")
    grown = ResourceSnapshot.now().descriptors - max(before.descriptors, opened.descriptors)
    if grown >= cancelled:
        yield wrong(f"{grown} sockets or pipes are left open after {cancelled} cancelled episodes.")
    if not problems:
        yield seen(f"{cancelled} episodes cancelled between turns and in {len(calls)} tools: nothing is left")


async def _cancel_all(context: CheckContext, bench: TaskBench, calls: Mapping[str, ToolCall]) -> tuple[int, list[str]]:
    """The number of cancelled episodes, and the problems that were found."""
    running, sample = asyncio.all_tasks(), context.some()[0]
    count, problems = 0, []
    agent = bench.runtime.agents is not None
    for call in (None, *(() if agent else calls.values())):
        where = f"in the tool {call.name}" if call else "in the agent" if agent else "between turns"
        for pauses in _PAUSES_S if call or agent else _PAUSES_S[:1]:
            stop_point = _StopPoint()
            play = _episode(bench, sample, call, stop_point)
            problem = await _cancelled(play, stop_point, pauses, context.options.deadline_s)
            count += 1
            if not problem and not agent and stop_point.closed != 1:
                problem = f"the environment is closed {stop_point.closed} times"
            problems += [f"cancelled {where}, {problem}"] if problem else []
        names = await _tasks_left(running)
        problems += [f"after a cancellation {where} the asyncio task {name} is left" for name in names]
        running |= asyncio.all_tasks()
    return count, problems


def _episode(
    bench: TaskBench, sample: Sample, call: ToolCall | None, stop_point: _StopPoint
) -> Coroutine[Any, Any, Trajectory]:
    """An episode that gets to the stop point in the tool that is called, or where its agent or environment waits."""
    policy = oracle(bench.task)
    if bench.runtime.agents is not None:

        def announce(*asked: Any) -> Message | str:
            stop_point.reached.set()
            return policy(*asked)

        return bench.episode(announce, sample)
    manager = bench.manager(lambda tool: ToolWrapper(tool, stop_point.in_tool)) if call else None
    policy = script(call, answer_text("42")) if call else policy
    around = partial(EnvWrapper, around=partial(stop_point.in_env, stops=call is None))
    return bench.episode(policy, sample, manager=manager, around=around)


async def _cancelled(
    play: Coroutine[Any, Any, Trajectory], stop_point: _StopPoint, pauses: Iterable[float], deadline_s: float
) -> str:
    """Cancel an episode at its stop point; what is wrong, empty if nothing is."""
    playing, reached = asyncio.ensure_future(play), asyncio.ensure_future(stop_point.reached.wait())
    await asyncio.wait((playing, reached), timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    for seconds in pauses:
        await asyncio.sleep(seconds)
    playing.cancel()
    await asyncio.wait((playing,), timeout=deadline_s)
    if not playing.done():
        return f"the episode is not over after {deadline_s:g} s"
    if not playing.cancelled() and (error := playing.exception()) is not None:
        return f"the episode raises {type(error).__name__}: {error}"
    return ""


async def _tasks_left(running: set[asyncio.Task[Any]]) -> list[str]:
    """The names of asyncio tasks that do not end in time."""
    until = time.monotonic() + _GRACE_S
    while (left := asyncio.all_tasks() - running) and time.monotonic() < until:
        await asyncio.wait(left, timeout=0.1)
    return sorted({getattr(task.get_coro(), "__qualname__", repr(task)) for task in left})


def _left(before: ResourceSnapshot) -> list[str]:
    """What is left of the episodes, in words; processes that are left are killed."""
    until = time.monotonic() + _GRACE_S
    while (now := ResourceSnapshot.now()).left_since(before) and time.monotonic() < until:
        time.sleep(0.05)
    for number in now.children.keys() - before.children.keys():
        with contextlib.suppress(psutil.Error):
            psutil.Process(number).kill()
    return now.left_since(before)


@contextlib.contextmanager
def _own_temporary_folder() -> Iterator[None]:
    """Another temporary folder for this process and its children; it is removed at the end with all files in it."""
    with (
        tempfile.TemporaryDirectory(prefix="rlfactory-check-") as folder,
        patch.dict(os.environ, TMPDIR=folder),
        patch.object(tempfile, "tempdir", folder),
    ):
        yield
