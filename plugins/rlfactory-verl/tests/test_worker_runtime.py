"""What a rollout worker of verl's plays: whatever happens in one trajectory stays in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from configs import made_config
from rlfactory_devkit import ScriptedSampler, ToyChatFormat
from rlfactory_verl.events import StopFile
from rlfactory_verl.rollout_request import Position, RolloutRequest
from rlfactory_verl.run_payload import Payload
from rlfactory_verl.worker_runtime import WorkerRuntime, worker_runtime

from rlfactory_core.algo.evaluation import EvalPass
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.types import FaultKind, Sample, StopReason, Trajectory
from rlfactory_core.utils.seeds import derive_seed

PLUGIN = """
import asyncio
from rlfactory_core import Sample, Score, Section, Task, hookimpl, tool
from rlfactory_core.errors import BackendError
from rlfactory_devkit import ToyChatFormat


@tool
async def look(where: str) -> str:
    return f"nothing {where}"


@tool(name="look")
async def look_in_vain(where: str) -> str:
    return "no results"


class Small(Task):
    class Config(Section):
        closed: bool = False

    tools = [look]
    opened = 0

    async def open(self):
        self.opened += 1
        await asyncio.sleep(0)
        if self.config.closed:
            raise BackendError("the index does not answer")

    def controls(self):
        return {"in_vain": [look_in_vain]}

    def make_env(self, sample, manager, context):
        if sample.metadata.get("raises"):
            raise RuntimeError("no such world")
        env = super().make_env(sample, manager, context)
        if sample.metadata.get("hangs"):
            env.step = lambda message: asyncio.Event().wait()
        return env


class Spent:
    async def open(self, task):
        self.run = task.run

    async def close(self): ...

    async def score(self, trajectory):
        self.run.request_stop(f"Spent on {trajectory.sample.id} in {self.run.folder.name}.")
        return Score(1.0)


class Toy(ToyChatFormat):
    def __init__(self, tokenizer, thinking): ...


@hookimpl
def rlfactory_tasks(register):
    register("small", Small)


@hookimpl
def rlfactory_reward_scorers(register):
    register("spent", Spent)


@hookimpl
def rlfactory_chat_formats(register):
    register("toy", Toy)
"""
LOOK = '<tool_call>{"name": "look", "arguments": {"where": "up"}}</tool_call>'


@pytest.fixture
def payload(tmp_path: Path) -> Any:
    file = tmp_path / "small.py"
    file.write_text(PLUGIN)

    def payload(**config: Any) -> Payload:
        registry = Registry()
        registry.load(str(file))
        made = made_config({"plugin": str(file), "engine": "verl", "chat": {"format": "toy"}, **config})
        return Payload.make(made, registry.fingerprints(), tmp_path)

    return payload


def play(made: WorkerRuntime, *works: RolloutRequest, attempt: int = 0) -> list[Trajectory]:
    """All at once, as verl's worker does it."""
    sampler: Any = ScriptedSampler([LOOK, "<answer>x</answer>"], ToyChatFormat())

    async def run() -> list[Trajectory]:
        found = await asyncio.gather(*(made.play(work.dumps(), attempt, sampler) for work in works))
        assert [work for work, _ in found] == list(works)
        await made.tasks.close()
        return [trajectory for _, trajectory in found]

    return asyncio.run(run())


def work(number: int = 0, how: EvalPass | None = None, **metadata: Any) -> RolloutRequest:
    return RolloutRequest(Sample(f"s{number}", "Where?", "x", metadata), 5, Position("train", 1, number), 1.0, how)


@pytest.mark.slow
def test_one_that_raises_or_hangs_spoils_itself_alone(payload: Any) -> None:
    made = WorkerRuntime(payload(verl={"trajectory_deadline_s": 0.2}), None)
    good, raises, hangs = play(made, work(0), work(1, raises=True), work(2, hangs=True))
    assert (good.masked, good.reward, good.stop) == (False, 1.0, StopReason.FINAL_ANSWER)
    assert [(t.masked, t.stop, t.faults[0].kind) for t in (raises, hangs)] == [
        (True, StopReason.FAULT, FaultKind.INFRA)
    ] * 2
    assert raises.faults[0].message == "RuntimeError: no such world"
    assert hangs.faults[0].message == "not done within verl.trajectory_deadline_s=0.2"


def test_the_task_is_opened_once(payload: Any) -> None:
    made = WorkerRuntime(payload(), None)
    play(made, *map(work, range(5)))
    assert made.tasks.only.task.opened == 1  # type: ignore[attr-defined]


def test_resources_that_do_not_answer_are_every_trajectorys_fault(payload: Any) -> None:
    made = WorkerRuntime(payload(task={"closed": True}), None)
    found = play(made, work(0), work(1))
    assert [t.masked for t in found] == [True, True]
    assert {t.faults[0].message for t in found} == {"BackendError: the index does not answer"}


def test_a_controls_tools_replace_the_tasks_own(payload: Any) -> None:
    made = WorkerRuntime(payload(), None)
    plain, control = play(made, work(0), work(1, EvalPass("control-in_vain", control="in_vain")))
    assert [t.turns[0].results[0].content for t in (plain, control)] == ["nothing up", "no results"]


def test_a_scorer_may_have_the_run_stopped_from_any_process(payload: Any, tmp_path: Path) -> None:
    made = WorkerRuntime(payload(rewards={"spent": 1.0}), None)
    stop = StopFile(tmp_path)
    assert not stop.requested
    (trajectory,) = play(made, work(7))
    assert not trajectory.masked
    assert stop.requested
    assert stop.reason == f"Spent on s7 in {tmp_path.name}."


def test_attempts_have_seeds_and_sessions_of_their_own(payload: Any) -> None:
    made = WorkerRuntime(payload(), None)
    sampler: Any = ScriptedSampler(lambda session, turn: f"<answer>{session}</answer>", ToyChatFormat())

    async def run() -> list[Trajectory]:
        return [(await made.play(work(3).dumps(), attempt, sampler))[1] for attempt in (0, 1)]

    found = asyncio.run(run())
    assert [t.turns[0].message.content for t in found] == ["<answer>1/3/0</answer>", "<answer>1/3/1</answer>"]
    assert [t.attempt for t in found] == [0, 1]
    assert [params.seed for params in sampler.params] == [derive_seed(derive_seed(5, "s3", i), 0) for i in (0, 1)]


def test_a_process_has_one_runtime_for_a_run(payload: Any) -> None:
    class Tokenizer: ...

    text, tokenizer = payload().to_text(), Tokenizer()
    try:
        assert worker_runtime(text, tokenizer, None) is worker_runtime(text, tokenizer, None)
    finally:
        worker_runtime.cache_clear()
