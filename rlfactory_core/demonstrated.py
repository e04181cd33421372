"""The default tiny model of a task that says how it is solved: a recipe made from the task's own episodes.

`Task.solve` is played over training samples, in the task's real environment and with its real tools. The model is first
shown these episodes as they are, until it copies; then careless ones, made from them: answers before looking, answers
that belong to another sample, answers that are not closed. So it can do every step and often leaves one out, which is
what GRPO has to teach.
"""

from __future__ import annotations

import asyncio
import json
import random
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlfactory_core.cache import digest
from rlfactory_core.config import RolloutConfig
from rlfactory_core.config_load import merge, validate_section
from rlfactory_core.errors import PluginError
from rlfactory_core.protocols import EnvStart
from rlfactory_core.rollout import Episode, RolloutLimits, gather_all, play_episode
from rlfactory_core.task import Task, own_samples
from rlfactory_core.tiny import Demonstration, TinyModelRecipe, WarmStartStage, call_text, tools_prompt
from rlfactory_core.tools.manager import DefaultToolManager
from rlfactory_core.tools.opening import OpenTools
from rlfactory_core.types import FaultKind, Message, Sample, StopReason, ToolSpec, Trajectory, Turn

__all__ = ["DEFAULTS", "demonstrated_recipe"]

EPISODES = 512  # played at most
HELD_OUT = 8  # one in so many is kept for the probe
AT_ONCE = 16  # episodes
ENDS = (StopReason.FINAL_ANSWER, StopReason.NO_TOOL_CALL, StopReason.ENV_DONE)
ARCHITECTURE = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 32,
    "max_position_embeddings": 4096,
}
VOCABULARY = 1024
DEFAULTS: Mapping[str, Any] = {
    "rollout": {"max_turn_tokens": 96, "max_tokens": 2048},
    "train": {
        "steps": 40,
        "prompts_per_step": 8,
        "group_size": 8,
        "updates_per_step": 2,
        "lr": 1e-3,
        "muon_lr": 3e-3,
    },
    "eval": {"every": 10, "limit": 64},
}
"""Of a run's configuration, where neither the task's ``defaults`` nor its ``tiny_defaults`` say otherwise."""


def is_demonstrated(task: Task) -> bool:
    """Whether the task says how it is solved, and brings no model of its own."""
    from rlfactory_core.task import Task

    return type(task).solve is not Task.solve and type(task).tiny_model is Task.tiny_model


def tiny_defaults(task: Task) -> Mapping[str, Any]:
    """What a run of the task's own tiny model has for defaults, the task's ``defaults`` included."""
    return merge(DEFAULTS if is_demonstrated(task) else {}, task.defaults, task.tiny_defaults)


def demonstrated_recipe(task: Task) -> TinyModelRecipe:
    """The recipe, from episodes that are played now, by another task of the same class and options.

    The same seed gives the same recipe where the tools answer the same.

    Raises:
        PluginError: there are no training samples, or `Task.solve` does not bring one of them to its end.
        UsageError, BackendError: as the task's `open`.
    """
    # A thread of its own: an engine asks within its event loop, to which the open task belongs.
    with ThreadPoolExecutor(1, "rlfactory-demonstrations") as thread:
        played = thread.submit(lambda: asyncio.run(_play(task))).result()
    held_out = tuple(played[::HELD_OUT])
    shown = tuple(each for number, each in enumerate(played) if number % HELD_OUT) or held_out
    tools = played[0].tools
    return TinyModelRecipe(
        architecture=ARCHITECTURE,
        vocabulary=lambda: _vocabulary(shown, tools),
        vocab_size=VOCABULARY,
        stages=(
            WarmStartStage(Demonstrator(shown), 500, 16, target=0.95, context_weight=0.3),
            WarmStartStage(Demonstrator(shown, CARELESS), 60, 16, context_weight=0.3),
        ),
        probe=Demonstrator(held_out),
        fingerprint=digest([Path(__file__).read_text(encoding="utf-8"), *(each.text for each in played)]),
        tools=tools,
    )


# --- episodes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Played:
    """An episode that `Task.solve` brought to its end."""

    messages: Demonstration
    prompt: int  # how many of the messages are the prompt
    tools: tuple[ToolSpec, ...]

    @property
    def turns(self) -> tuple[int, ...]:
        """Where the solver's own messages stand."""
        places = range(self.prompt, len(self.messages))
        return tuple(place for place in places if self.messages[place].role == "assistant")

    @property
    def text(self) -> str:
        """All of it, for the fingerprint."""
        tools = [[tool.name, tool.description, dict(tool.parameters)] for tool in self.tools]
        said = [[m.role, m.content, m.reasoning, [_called(m)]] for m in self.messages]
        return json.dumps([tools, said], sort_keys=True, default=str)


def solved(said: object, place: str) -> Message:
    """What `Task.solve` gave.

    Args:
        place: where, for the message.

    Raises:
        PluginError: it is no turn of the assistant's.
    """
    if isinstance(said, Message) and said.role == "assistant":
        return said
    raise PluginError(f"{place}: got {said!r:.200}, expected a Message of the role 'assistant'.")


class _Solver:
    """Speaks as `Task.solve` says, and keeps the conversation."""

    def __init__(self, task: Task, sample: Sample) -> None:
        self._task, self._sample = task, sample
        self.messages: list[Message] = []
        self.prompt = 0
        self.tools: tuple[ToolSpec, ...] = ()

    def start(self, start: EnvStart) -> None:
        self.messages += start.messages
        self.prompt, self.tools = len(start.messages), start.tools

    async def say(self, number: int) -> Turn | None:
        place = f"{type(self._task).__name__}.solve, sample '{self._sample.id}', turn {number + 1}"
        try:
            said = self._task.solve(self._sample, tuple(self.messages))
        except Exception as error:  # the boundary to the task's code
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}, line {frame.lineno}"
            raise PluginError(f"{place}: {type(error).__name__}: {error} ({where}).") from error
        said = solved(said, place)
        calls = (replace(call, id=f"call_{number}") for number, call in enumerate(said.tool_calls))
        said = replace(said, tool_calls=tuple(calls))  # which is called by which id is the conversation's affair
        self.messages.append(said)
        return Turn((), (), (), said, finish="stop")

    def hear(self, messages: Sequence[Message]) -> None:
        self.messages += messages

    async def close(self) -> None:
        """Nothing is held."""


async def _play(like: Task) -> list[Played]:
    """The episodes of training samples from all over the split, in a fixed order."""
    task = type(like)(like.config.model_dump(mode="json", exclude_unset=True), like.seed)
    task.progress, task.run = like.progress, like.run
    samples = own_samples(task, "train")
    if not samples:
        raise PluginError(
            f"{type(task).__name__} has no training samples of its own, so its default model has nothing to learn "
            "from. Name a model with --model (a folder or a hub id)."
        )
    task.check(samples)
    chosen = random.Random(f"demonstrations {task.seed}").sample(samples, min(EPISODES, len(samples)))
    tools = OpenTools()
    async with AsyncExitStack() as opened:
        opened.push_async_callback(task.close)
        await task.open()
        opened.push_async_callback(tools.close)
        await tools.open(task.tools)
        manager = DefaultToolManager(tools.tools)
        opened.push_async_callback(manager.close)
        task.progress.stage("warm start: demonstrations", len(chosen), "episode")
        slots = asyncio.Semaphore(AT_ONCE)
        limits = _limits(task)

        async def play(number: int, sample: Sample) -> Played:
            async with slots:
                solver = _Solver(task, sample)
                episode = Episode(sample, lambda s, c: task.make_env(s, manager, c), limits, f"demonstration-{number}")
                _refuse_unfinished(task, await play_episode(episode, solver))
                task.progress.advance(1)
                return Played(tuple(solver.messages), solver.prompt, solver.tools)

        return await gather_all(play(number, sample) for number, sample in enumerate(chosen))


def _limits(task: Task) -> RolloutLimits:
    """The turns and calls that a run of the task allows, unless it is told otherwise."""
    config = validate_section(RolloutConfig, tiny_defaults(task).get("rollout", {}), prefix="rollout")
    return RolloutLimits(config.max_turns, config.max_tool_calls, config.max_turn_tokens, config.max_tokens)


def _refuse_unfinished(task: Task, trajectory: Trajectory) -> None:
    """Only what is worth imitating is shown: a solver that is stuck, or that calls wrongly, is a mistake of its own."""
    place = f"{type(task).__name__}.solve does not solve sample '{trajectory.sample.id}'"
    for fault in trajectory.faults:
        if fault.kind in (FaultKind.POLICY, FaultKind.INFRA):
            raise PluginError(f"{place}: turn {fault.turn + 1}, {fault.source}: {fault.message}")
    if trajectory.stop not in ENDS:
        raise PluginError(
            f"{place}: after {len(trajectory.turns)} turns it has come to no end ({trajectory.stop.value}). It has to "
            "answer without a call at last, within the rollout.max_turns and max_tool_calls of the task's defaults."
        )


# --- demonstrations -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Carelessness:
    """Probabilities, for each episode."""

    too_early: float = 0.0  # answers before one of its calls, with another's answer
    wrong_answer: float = 0.0  # does everything, and gives another's answer
    format_slip: float = 0.0  # does not close the answer


CARELESS = Carelessness(too_early=0.6, wrong_answer=0.1, format_slip=0.08)


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """Shows one of the episodes a call."""

    episodes: Sequence[Played]
    care: Carelessness = Carelessness()

    def __call__(self, rng: random.Random) -> Demonstration:
        episode = rng.choice(self.episodes)
        *before, end = episode.turns
        answer = episode.messages[end]
        other = rng.choice(self.episodes)
        wrong = other.messages[other.turns[-1]]
        chance = rng.random()
        if chance < self.care.too_early:
            end, answer = rng.choice(before or [end]), wrong
        elif chance < self.care.too_early + self.care.wrong_answer:
            answer = wrong
        if rng.random() < self.care.format_slip:
            answer = replace(answer, content=answer.content.removesuffix("</answer>").rstrip())
        return (*episode.messages[:end], answer)


def _vocabulary(episodes: Sequence[Played], tools: Sequence[ToolSpec]) -> Iterator[str]:
    """Often enough that what stands in every prompt becomes few tokens."""
    yield from [tools_prompt(tools)] * 30 if tools else []
    yield from ["user\nassistant\n"] * 30  # the template's, in every turn
    for episode in episodes:
        yield "\n".join(f"{message.content}\n{_called(message)}" for message in episode.messages)


def _called(message: Message) -> str:
    return "\n".join(call_text(call.name, call.arguments or {}) for call in message.tool_calls)
