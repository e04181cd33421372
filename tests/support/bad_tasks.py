"""A one-file plugin with one good task and many that are bad, each in one way: ``--bad NAME`` chooses."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlfactory_core import Message, Sample, Score, Section, Task, ToolContext, Trajectory, hookimpl, tool
from rlfactory_core.protocols import Env, EnvStart, EnvStep, ToolManager
from rlfactory_core.rewards.scorers import accepted_answers, last_answer
from rlfactory_core.rollout import ToolEnv
from rlfactory_core.tiny import answer_text, call
from rlfactory_core.types import FaultKind

THINGS = ("apple", "button", "candle", "dagger", "eraser", "feather", "garlic", "hammer", "needle", "pencil", "ribbon")
DRAWERS = ("Bale", "Doru", "Fimo", "Gatu", "Hepi", "Jalo", "Kemu", "Lora", "Mipa", "Nobe", "Pagu", "Rudo")
COUNT = 6  # samples of a split


class Good(Task):
    """What lies in a drawer? One call tells."""

    class Config(Section):
        bad: str = "good"

    rewards: Mapping[str, float] = {"exact_match": 1.0}
    defaults = {"rollout": {"max_turns": 4, "max_tool_calls": 4}}
    description: str | None = None  # of the tool; None: its docstring

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        self.tools = [tool(self.look, description=self.description)]

    def samples(self, split: str) -> Iterable[Sample]:
        rng = random.Random(f"{split} {self.seed}")
        drawers = DRAWERS[:COUNT] if split == "train" else DRAWERS[COUNT:]
        for number, drawer in enumerate(drawers):
            thing = rng.choice(THINGS)
            yield self.row(Sample(f"{split}-{number}", f"What lies in {drawer}?", thing, {"drawer": drawer}, split))

    def row(self, sample: Sample) -> Sample:
        return sample

    async def look(self, drawer: str, context: ToolContext) -> str:
        """Look into a drawer.

        Args:
            drawer: its name.
        """
        await self.before(drawer)
        return f"a {context.sample.answer}" if drawer == context.sample.metadata["drawer"] else "nothing"

    async def before(self, drawer: str) -> None:
        await asyncio.sleep(0)

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        if messages[-1].role == "tool":
            return Message("assistant", answer_text(messages[-1].content.removeprefix("a ")))
        return Message("assistant", "", tool_calls=(call("look", drawer=sample.metadata["drawer"]),))


# --- samples --------------------------------------------------------------------------------------------------------


class PromptLeak(Good):
    def row(self, sample: Sample) -> Sample:
        return replace(sample, prompt=f"{sample.prompt} (Solution: {sample.answer}.)")


class IdLeak(Good):
    def row(self, sample: Sample) -> Sample:
        return replace(sample, id=f"{sample.id}/{sample.answer}")


class Undescribed(Good):
    description = ""


class SomeUnanswered(Good):
    def row(self, sample: Sample) -> Sample:
        return replace(sample, answer=None if int(sample.id[-1]) % 2 else sample.answer)


class Prints(Good):
    async def before(self, drawer: str) -> None:
        print(drawer)


class Moves(Good):
    async def before(self, drawer: str) -> None:
        os.chdir("/")


class OddMetadata(Good):
    def row(self, sample: Sample) -> Sample:
        return replace(sample, metadata={**sample.metadata, 3: {1, 2}})


class Unseeded(Good):
    def row(self, sample: Sample) -> Sample:
        return replace(sample, prompt=f"{sample.prompt} {random.random()}")


class HashOrder(Good):
    def row(self, sample: Sample) -> Sample:
        return replace(sample, prompt=f"{''.join(frozenset('abcdefgh'))}: {sample.prompt}")


class NotPicklable(Good):
    def row(self, sample: Sample) -> Sample:
        return replace(sample, metadata={**sample.metadata, "lock": threading.Lock()})


class OnlyHere(Good):
    """Knows another process by its program."""

    def samples(self, split: str) -> Iterable[Sample]:
        if sys.argv[0].endswith("other_process.py"):
            raise RuntimeError("the data is not on this machine")
        return super().samples(split)


class EvalInTrain(Good):
    def samples(self, split: str) -> Iterable[Sample]:
        rows = list(super().samples("train"))
        yield from (rows if split == "train" else (replace(row, id=f"eval-{row.id}", split=split) for row in rows[:2]))


class SameIds(Good):
    def row(self, sample: Sample) -> Sample:
        return replace(sample, id="sample")


# --- rewards --------------------------------------------------------------------------------------------------------


class Paying:
    """A scorer that is right about right answers."""

    right = 1.0

    async def score(self, trajectory: Trajectory) -> Score:
        answer = last_answer(trajectory)
        return Score(self.right if answer in accepted_answers(trajectory.sample) else self.wrong(answer, trajectory))

    def wrong(self, answer: str | None, trajectory: Trajectory) -> float:
        return 0.0


class PaysSilence(Paying):
    def wrong(self, answer: str | None, trajectory: Trajectory) -> float:
        return float(not trajectory.turns[-1].message.content)


class PaysTags(Paying):
    def wrong(self, answer: str | None, trajectory: Trajectory) -> float:
        return 0.0 if answer is None else 0.9


class PaysByChance(Paying):
    def wrong(self, answer: str | None, trajectory: Trajectory) -> float:
        return 0.3 * random.random()


class PaysNan(Paying):
    def wrong(self, answer: str | None, trajectory: Trajectory) -> float:
        return float("nan") if answer is None else 0.0


class PaysTooMuch(Paying):
    def wrong(self, answer: str | None, trajectory: Trajectory) -> float:
        return len(answer or "") / 100.0


class Crashes(Paying):
    def wrong(self, answer: str | None, trajectory: Trajectory) -> float:
        return 0.0 * len(trajectory.turns[-1].message.content.split()[0])


class PaysLess(Paying):
    right = 0.9


SCORERS = Paying.__subclasses__()


# --- episodes -------------------------------------------------------------------------------------------------------


class SharedState(Good):
    """The tool tells what anybody has looked at before."""

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        self.looked = ["nobody"]

    async def look(self, drawer: str, context: ToolContext) -> str:
        before, self.looked[0] = self.looked[0], context.sample.id
        found = await super().look(drawer, context)
        return found if found != "nothing" else f"nothing; {before} was here"


class Blocks(Good):
    """Its tool stops the whole event loop where it finds nothing."""

    async def look(self, drawer: str, context: ToolContext) -> str:
        found = await super().look(drawer, context)
        if found == "nothing":
            threading.Event().wait(2.0)  # longer than the test gives it
        return found


class BlocksLoop(Good):
    """Its tool keeps the event loop for longer than a tool may, in each split's first drawer."""

    async def before(self, drawer: str) -> None:
        if drawer in (DRAWERS[0], DRAWERS[COUNT]):
            time.sleep(0.8)  # noqa: ASYNC251


class Exits(Good):
    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        sys.exit(5)


class OwnEnv(Good):
    """With an environment that is bad."""

    env: type[ToolEnv] = ToolEnv

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        return self.env(sample, manager, context)


class PaysSteps(OwnEnv):
    """Half of the reward is for looking, each time."""

    rewards = {"exact_match": 0.5}
    reward_bounds = (0.0, 1.0)

    class env(ToolEnv):  # noqa: N801
        async def step(self, message: Message) -> EnvStep:
            step = await super().step(message)
            return replace(step, reward=0.5 * any(result.content.startswith("a ") for result in step.results))


class SchemaLeak(OwnEnv):
    class env(ToolEnv):  # noqa: N801
        async def start(self) -> EnvStart:
            start = await super().start()
            told = f"Look into a drawer. It tells {self._sample.answer}."
            return replace(start, tools=tuple(replace(each, description=told) for each in start.tools))


class EnvRaises(OwnEnv):
    class env(ToolEnv):  # noqa: N801
        async def step(self, message: Message) -> EnvStep:
            step = await super().step(message)
            if any(result.fault is FaultKind.TOOL for result in step.results):
                raise RuntimeError("a tool failed")
            return step


class EnvHidesFaults(OwnEnv):
    class env(ToolEnv):  # noqa: N801
        async def step(self, message: Message) -> EnvStep:
            step = await super().step(message)
            return replace(step, results=(), stop=None if step.messages else step.stop)


class EnvSpeaks(OwnEnv):
    class env(ToolEnv):  # noqa: N801
        async def step(self, message: Message) -> EnvStep:
            step = await super().step(message)
            said = (Message("assistant", "Let me see."),) if step.messages else ()
            return replace(step, messages=(*said, *step.messages))


class SolveRaises(Good):
    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        raise KeyError("no such step")


class Unsolved(Good):
    has_solution = False

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        return Message("assistant", answer_text("perhaps"))


class SolveLoops(Good):
    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        return super().solve(sample, messages[:1])


class SolveNeedsResults(Good):
    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        assert "rror" not in messages[-1].content
        return super().solve(sample, messages)


# --- opening, closing, cancelling -----------------------------------------------------------------------------------


class OpenRaises(Good):
    async def open(self) -> None:
        raise RuntimeError("no index")


class CloseHangs(Good):
    async def close(self) -> None:
        await asyncio.Event().wait()


class CloseBlocks(Good):
    async def close(self) -> None:
        threading.Event().wait(3.0)  # longer than the test gives it


class SecondCloseRaises(Good):
    closed = 0

    async def close(self) -> None:
        self.closed += 1
        if self.closed > 1:
            raise RuntimeError("closed already")


class CloseNeedsOpen(Good):
    async def open(self) -> None:
        self.index = ["a"]

    async def close(self) -> None:
        self.index.clear()


class LeavesProcess(Good):
    async def before(self, drawer: str) -> None:
        helper = subprocess.Popen(["sleep", "60"])  # noqa: ASYNC220
        await asyncio.sleep(0.02)
        helper.kill()
        helper.wait()


class LeavesFile(Good):
    async def before(self, drawer: str) -> None:
        handle, name = tempfile.mkstemp()
        os.close(handle)
        await asyncio.sleep(0.02)
        os.unlink(name)


class LeavesTask(Good):
    async def before(self, drawer: str) -> None:
        beat = asyncio.create_task(asyncio.sleep(60.0))
        await asyncio.sleep(0.02)
        beat.cancel()


class SwallowsCancellation(Good):
    async def before(self, drawer: str) -> None:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            await asyncio.sleep(60.0)


def called(kind: type) -> str:
    """``PromptLeak`` is ``prompt_leak``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__)[1:]


KINDS = [kind for kind in vars().values() if isinstance(kind, type) and issubclass(kind, Good)]
TASKS = {called(kind): kind for kind in KINDS if kind is not OwnEnv}


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    def make(config: dict[str, Any], seed: int) -> Task:
        name = config.get("bad", "good")
        task = TASKS.get(name, Good)(config, seed)
        task.rewards = task.rewards if name in TASKS else {name: 1.0}
        return task

    register("bad_tasks", make)


@hookimpl
def rlfactory_reward_scorers(register: Any) -> None:
    for kind in SCORERS:
        register(called(kind), kind)
