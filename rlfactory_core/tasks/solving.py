"""Plays `Task.demonstrate` in the task's own environment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from rlfactory_core.algo.masking import masking_text, too_many
from rlfactory_core.clients import ServerModel
from rlfactory_core.errors import PluginError
from rlfactory_core.protocols import Request, Sampled
from rlfactory_core.rollout.settings import RolloutConfig
from rlfactory_core.settings import merge, validate_section
from rlfactory_core.tasks.runtime import TaskRuntime
from rlfactory_core.tasks.scorers import Scorers
from rlfactory_core.tasks.setup import TaskSetup, own_samples, raised_at
from rlfactory_core.tasks.task import Task
from rlfactory_core.tiny import Demonstration
from rlfactory_core.tools.manager import DefaultToolManager
from rlfactory_core.tools.settings import ToolsConfig
from rlfactory_core.types import FaultKind, Message, Sample, StopReason, ToolSpec, Trajectory
from rlfactory_core.utils.aio import gather_all

EPISODES = 512  # at most
AT_ONCE = 16  # concurrent episodes
TRIES = 3  # of an episode whose tools give no answer
ENDS = (StopReason.FINAL_ANSWER, StopReason.NO_TOOL_CALL, StopReason.ENV_DONE)
DEFAULTS: Mapping[str, Any] = {
    "rollout": {"max_turn_tokens": 96, "max_tokens": 2048},
    "train": {"steps": 40, "prompts_per_step": 8, "group_size": 8, "updates_per_step": 2, "lr": 1e-3, "muon_lr": 3e-3},
    "eval": {"every": 10, "limit": 64},
}
"""Of the configuration of a run with a tiny model; the task's ``defaults`` and ``tiny_defaults`` override them."""


def is_solved(task: Task) -> bool:
    """Whether the task shows how it is solved."""
    return type(task).solve is not Task.solve or type(task).demonstrate is not Task.demonstrate


def is_demonstrated(task: Task) -> bool:
    """Whether the task's model learns from `Task.demonstrate`: it shows a solution, and makes no recipe of its own."""
    return is_solved(task) and type(task).tiny_model is Task.tiny_model


def tiny_defaults(task: Task) -> Mapping[str, Any]:
    """The defaults of a run with the task's own tiny model, which include the task's ``defaults``."""
    has_model = is_demonstrated(task) or type(task).tiny_model is not Task.tiny_model
    return merge(DEFAULTS if has_model else {}, task.defaults, task.tiny_defaults)


Show = Callable[[Sample, str], Awaitable[tuple[Trajectory, list["Played"]]]]
"""Plays an episode with this name; returns it, and the conversations that it shows, one for each row."""


@dataclass(frozen=True, slots=True)
class Played:
    """An episode that `Task.demonstrate` has finished."""

    messages: Demonstration
    prompt: int  # the number of messages in the prompt
    tools: tuple[ToolSpec, ...]

    @property
    def turns(self) -> tuple[int, ...]:
        """The indices of the solver's messages."""
        indices = range(self.prompt, len(self.messages))
        return tuple(index for index in indices if self.messages[index].role == "assistant")


def solve_turn(task: Task, sample: Sample, messages: Sequence[Message]) -> Message:
    """The next message of `Task.solve`.

    Raises:
        PluginError: it returned something other than an assistant message.
        Exception: whatever `Task.solve` raises.
    """
    return _checked(f"{type(task).__name__}.solve, sample '{sample.id}'", task.solve(sample, messages))


def _checked(place: str, said: object) -> Message:
    if isinstance(said, Message) and said.role == "assistant":
        return said
    raise PluginError(f"{place}: got {said!r:.200}, expected a Message of the role 'assistant'.")


def demonstrated(task: Task, sample: Sample, messages: Sequence[Message]) -> Message:
    """The next message of `Task.demonstrate`.

    Raises:
        PluginError: it raised, or returned something other than an assistant message.
    """
    turn = sum(message.role == "assistant" for message in messages) + 1
    place = f"{_shown_by(task)}, sample '{sample.id}', turn {turn}"
    try:
        return _checked(place, task.demonstrate(sample, tuple(messages)))
    except PluginError:
        raise
    except Exception as error:  # the boundary to the task's code
        raise PluginError(f"{place}: {type(error).__name__}: {error} ({raised_at(error)}).") from error


class _Demonstrator(ServerModel):
    """Answers by `Task.demonstrate`; keeps the conversations that it has shown, by their session.

    An environment has one session, an agent one for each row.
    """

    def __init__(self, task: Task, sample: Sample) -> None:
        self._task, self._sample = task, sample
        self.shown: dict[str, Played] = {}

    async def answer(self, request: Request) -> Sampled:
        turn = demonstrated(self._task, self._sample, request.messages)
        calls = (replace(call, id=f"call_{number}") for number, call in enumerate(turn.tool_calls))
        turn = replace(turn, tool_calls=tuple(calls))  # the task need not give its calls different ids
        session, prompt = request.session, len(request.messages)
        prompt = self.shown[session].prompt if session in self.shown else prompt
        self.shown[session] = Played((*request.messages, turn), prompt, tuple(request.tools))
        return Sampled(turn)


def chosen_samples(task: Task) -> list[Sample]:
    """Random training samples in a fixed order, which are demonstrated.

    Raises:
        PluginError: the task has none.
    """
    samples = own_samples(task, "train")
    if not samples:
        raise PluginError(
            f"{type(task).__name__} has no training samples of its own, so its default model has nothing to learn "
            "from. Name a model with --model (a folder or a hub id)."
        )
    return random.Random(f"demonstrations {task.seed}").sample(samples, min(EPISODES, len(samples)))


@asynccontextmanager
async def _stage(setup: TaskSetup) -> AsyncIterator[tuple[Task, Show]]:
    """Opens a task of the same class and options, on which demonstrations are played, and the tools of servers."""
    like = setup.task
    task = type(like)(like.config.model_dump(mode="json", exclude_unset=True), like.seed)
    task.join(like.run, like.progress)
    config = validate_section(RolloutConfig, tiny_defaults(task).get("rollout", {}), prefix="rollout")
    alone = replace(setup, task=task, scorers=Scorers.of({}), rollout=config, tools=ToolsConfig())
    runtime = TaskRuntime(replace(alone, make_manager=DefaultToolManager))

    async def show(sample: Sample, name: str) -> tuple[Trajectory, list[Played]]:
        model = _Demonstrator(task, sample)
        played = await runtime.rollout(runtime.episode(sample, 1.0, 0, name, None), model)
        return played, list(model.shown.values())

    try:
        await runtime.open()
        yield task, show
    finally:
        await runtime.close()


async def demonstrated_tools(setup: TaskSetup) -> tuple[ToolSpec, ...]:
    """The tools that the task's agent offers the model, found by playing one of the `chosen_samples`.

    Raises:
        PluginError: `Task.demonstrate` does not solve it.
    """
    async with _stage(replace(setup, make_env=None)) as (task, show):
        trajectory, _ = await show(chosen_samples(task)[0], "demonstration-tools")
        _check_solved(task, trajectory)
        return trajectory.tools


async def play_solutions(setup: TaskSetup) -> list[Played]:
    """Episodes of the `chosen_samples`, played by a new task of the same class and options.

    An episode that is lost because a tool gives no answer is played again, and left out if it is lost each time.
    """
    like = setup.task
    chosen = chosen_samples(like)
    like.check(chosen)
    slots = asyncio.Semaphore(AT_ONCE)
    async with _stage(setup) as (task, show):
        task.progress.stage("warm start: demonstrations", len(chosen), "episode")

        async def play(number: int, sample: Sample) -> list[Played] | str:
            lost = ""
            shown: list[Played] = []
            async with slots:
                for _ in range(TRIES):
                    trajectory, shown = await show(sample, f"demonstration-{number}")
                    lost = masking_text([trajectory])
                    if not lost:
                        _check_solved(task, trajectory)
                        break
                task.progress.advance(1)
            return lost or shown

        found = await gather_all(play(number, sample) for number, sample in enumerate(chosen))
    lost = [each for each in found if isinstance(each, str)]
    if too_many(len(lost), len(found)):
        raise PluginError(
            f"{len(lost)} of {len(found)} demonstrations of {_shown_by(task)} were lost because of the "
            f"tools. The first, {TRIES} times: {lost[0]}."
        )
    if lost:
        task.progress.say(f"warning: {len(lost)} of {len(found)} demonstrations were lost. The first: {lost[0]}.")
    return [each for shown in found if not isinstance(shown, str) for each in shown]


def _shown_by(task: Task) -> str:
    """The method that the author has written."""
    own = "solve" if type(task).demonstrate is Task.demonstrate else "demonstrate"
    return f"{type(task).__name__}.{own}"


def _check_solved(task: Task, trajectory: Trajectory) -> None:
    """Raise a `PluginError` if the solver made a wrong call or did not finish, because a model would learn it."""
    place = f"{_shown_by(task)} does not solve sample '{trajectory.sample.id}'"
    for fault in trajectory.faults:
        if fault.kind is FaultKind.POLICY:
            raise PluginError(f"{place}: turn {fault.turn + 1}, {fault.source}: {fault.message}")
        if fault.kind is FaultKind.AGENT:
            raise PluginError(f"{place}: the agent failed: {fault.message}")
    if trajectory.stop not in ENDS:
        raise PluginError(
            f"{place}: it has not ended after {len(trajectory.turns)} turns ({trajectory.stop.value}). It has to end "
            "with a message without a call, within rollout.max_turns and rollout.max_tool_calls of the task's defaults."
        )
