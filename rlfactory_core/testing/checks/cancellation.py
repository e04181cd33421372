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

from rlfactory_core.protocols import Env, EnvStart, EnvStep, Tool
from rlfactory_core.testing.bench import TaskBench
from rlfactory_core.testing.checks.result import Evidence, seen, wrong
from rlfactory_core.testing.checks.subject import Subject
from rlfactory_core.testing.examples import example_calls
from rlfactory_core.testing.footprint import Footprint, still_there, written_files
from rlfactory_core.testing.policies import oracle, script
from rlfactory_core.tiny import answer_text
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.types import Message, ToolCall, Trajectory

_GRACE_S = 3.0  # for what is being let go of


async def _passes(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


_DELAYS: tuple[Callable[[], Awaitable[None]], ...] = (  # what a tool gets before the cancellation
    *(partial(_passes, number) for number in (0, 1, 3, 10)),  # turns of the event loop
    partial(asyncio.sleep, 0.05),  # so that it is really under way
)


class _Moment:
    """Where an episode is stopped: there it says so, and waits or goes on into a tool."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.closed = 0

    def around(self, env: Env) -> Env:
        return _Stopping(env, self, stops=True)

    def counting(self, env: Env) -> Env:
        return _Stopping(env, self, stops=False)

    def tool(self, tool: Tool) -> Tool:
        return _Announced(tool, self)


class _Stopping:
    """Stands still once the environment has answered: as if a model were being waited for."""

    def __init__(self, env: Env, moment: _Moment, *, stops: bool) -> None:
        self._env, self._moment, self._stops = env, moment, stops

    async def start(self) -> EnvStart:
        return await self._env.start()

    async def step(self, message: Message) -> EnvStep:
        step = await self._env.step(message)
        if self._stops:
            self._moment.reached.set()
            await asyncio.Event().wait()
        return step

    async def close(self) -> None:
        self._moment.closed += 1
        await self._env.close()


class _Announced:
    """A tool that says when it is called."""

    def __init__(self, tool: Tool, moment: _Moment) -> None:
        self.spec, self.version, self.deadline_s = tool.spec, tool.version, tool.deadline_s
        self.idempotent, self.stateful = tool.idempotent, tool.stateful
        self._tool, self._moment = tool, moment

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self._moment.reached.set()
        return await self._tool.call(arguments, context)

    async def close(self) -> None:
        """The task's own manager closes it."""


def check(subject: Subject) -> Iterator[Evidence]:
    """Episodes are cancelled between turns and in each tool; then no asyncio task is left, and once the task is
    closed no process, thread, open file, or file that was written meanwhile."""
    played = subject.oracle()
    before = Footprint.now()
    with _own_temporary_folder(), contextlib.ExitStack() as stack:
        bench = subject.closed_bench()
        bench.__enter__()
        stack.callback(_close_quietly, bench, subject.close_s)
        bench.play(oracle(bench.task), subject.some(), deadline_s=subject.deadline_s)  # what all share is there now
        calls = {call.name: call for call in example_calls(bench.tools, played)}
        opened = Footprint.now()
        with written_files().noted() as made:
            told = bench.run(_cancel_all(subject, bench, calls), 600.0, "cancelling")
            stack.close()
            left = _left(before, made)
    cancelled, problems = told
    for problem in dict.fromkeys([*problems, *left]):
        yield wrong(f"{problem}. Let go of it in a finally, and let a cancellation through.")
    grown = Footprint.now().channels - max(before.channels, opened.channels)
    if grown >= cancelled:
        yield wrong(f"{grown} sockets or pipes are left open after {cancelled} cancelled episodes.")
    if not problems and not left:
        yield seen(f"{cancelled} episodes cancelled between turns and in {len(calls)} tools: nothing is left")


def _close_quietly(bench: TaskBench, deadline_s: float) -> None:
    with contextlib.suppress(Exception):  # the boundary to the task's close; the check `close` tells of it
        bench.close(deadline_s)


async def _cancel_all(subject: Subject, bench: TaskBench, calls: Mapping[str, ToolCall]) -> tuple[int, list[str]]:
    """How many episodes were cancelled, and what was wrong with it."""
    running = asyncio.all_tasks()
    sample, problems, count = subject.some()[0], [], 0
    for call in (None, *calls.values()):
        for delay in _DELAYS:
            moment = _Moment()
            if call is None:
                play = bench.episode(oracle(bench.task), sample, around=moment.around)
            else:
                manager = bench.manager(moment.tool)
                play = bench.episode(script(call, answer_text("42")), sample, manager=manager, around=moment.counting)
            problem = await _cancelled(play, moment, delay, subject.deadline_s)
            count += 1
            where = f"cancelled in the tool {call.name}" if call else "cancelled between turns"
            problems += [f"{where}, {problem}"] if problem else []
            if call is None:
                break
        names = await _tasks_left(running)
        where = f"in the tool {call.name}" if call else "between turns"
        problems += [f"after a cancellation {where} the asyncio task {name} is left" for name in names]
        running |= asyncio.all_tasks()
    return count, problems


async def _cancelled(
    play: Coroutine[Any, Any, Trajectory], moment: _Moment, delay: Callable[[], Awaitable[None]], deadline_s: float
) -> str:
    playing, reached = asyncio.ensure_future(play), asyncio.ensure_future(moment.reached.wait())
    await asyncio.wait((playing, reached), timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    await delay()
    playing.cancel()
    await asyncio.wait((playing,), timeout=deadline_s)
    if not playing.done():
        return f"the episode is not over after {deadline_s:g} s"
    if not playing.cancelled() and (error := playing.exception()) is not None:
        return f"the episode raises {type(error).__name__}: {error}"
    return "" if moment.closed == 1 else f"the environment is closed {moment.closed} times"


async def _tasks_left(running: set[asyncio.Task[Any]]) -> list[str]:
    """The names of tasks that do not end in time."""
    until = time.monotonic() + _GRACE_S
    while (left := asyncio.all_tasks() - running) and time.monotonic() < until:
        await asyncio.wait(left, timeout=0.1)
    return sorted({getattr(task.get_coro(), "__qualname__", repr(task)) for task in left})


def _left(before: Footprint, made: set[str]) -> list[str]:
    """In words; processes are ended."""
    until = time.monotonic() + _GRACE_S
    while (now := Footprint.now()).left_since(before) and time.monotonic() < until:
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
    """For this process and those that it starts; what stays in it is found all the same, and goes with it."""
    kept, environment = tempfile.tempdir, os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="rlfactory-check-") as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        try:
            yield
        finally:
            tempfile.tempdir = kept
            if environment is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = environment
