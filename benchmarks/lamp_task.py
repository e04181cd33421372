"""A task whose answer is only in a picture that a tool returns, for `images_learn.py`: which colour does the lamp show?

The prompt is the same in all samples. After the model's first turn, a guess, the environment calls the tool, which
returns nothing but the picture; the second turn has to be the first letter of the colour.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import PIL.Image

from rlfactory_core import Message, Sample, Score, Task, ToolContext, Trajectory, hookimpl, tool
from rlfactory_core.protocols import Env, EnvStart, EnvStep, ToolManager
from rlfactory_core.tiny import Demonstration, call
from rlfactory_core.types import StopReason

COLOURS = {"R": 0, "B": 2}  # the place of its value in RGB
QUESTION = Message("user", "?")


def picture(colour: str, shade: str) -> PIL.Image.Image:
    """A picture of 16 x 16 pixels in the colour; another shade has slightly different values."""
    rng = random.Random(f"{colour} {shade}")
    red, green, blue = (rng.randint(180, 255) if COLOURS[colour] == at else rng.randint(0, 70) for at in range(3))
    return PIL.Image.new("RGB", (16, 16), (red, green, blue))


def guess(rng: random.Random, shown: str) -> Demonstration:
    """An episode of somebody who knows both letters, but does not see: each turn is any of them."""
    before, after = (Message("assistant", rng.choice(list(COLOURS))) for _ in range(2))
    return (QUESTION, before, Message("user", shown), after)


@tool
def look(context: ToolContext) -> PIL.Image.Image:
    """Look at the lamp."""
    return picture(str(context.sample.answer), context.sample.id)


@tool(name="look")
def look_in_the_dark() -> PIL.Image.Image:
    """Look at a lamp that is off."""
    return PIL.Image.new("RGB", (16, 16), (40, 40, 40))


class LampEnv:
    """The model guesses, sees what the tool returns, and answers."""

    def __init__(self, manager: ToolManager, context: ToolContext) -> None:
        self._manager, self._context, self._looked = manager, context, False

    async def start(self) -> EnvStart:
        return EnvStart((QUESTION,))

    async def step(self, message: Message) -> EnvStep:
        if self._looked:
            return EnvStep(stop=StopReason.ENV_DONE)
        self._looked = True
        results = await self._manager.invoke((call("look"),), self._context)
        return EnvStep((Message("user", results[0].content),), results=results)

    async def close(self) -> None:
        """Nothing is open."""


class Colour:
    """1 if the second turn is the colour's letter, and nothing else."""

    async def score(self, trajectory: Trajectory) -> Score:
        said = trajectory.turns[-1].message.content if len(trajectory.turns) > 1 else ""
        return Score(float(said.strip() == trajectory.sample.answer))


class Lamp(Task):
    """Say which colour a lamp shows."""

    tools = [look]
    rewards = {"colour": 1.0}
    defaults = {
        "rollout": {"max_turns": 2, "max_turn_tokens": 6, "max_tokens": 120},
        "train": {"prompts_per_step": 8, "group_size": 8, "lr": 1e-3, "muon_lr": 0.0},
        "eval": {"every": 0, "limit": 64},
    }

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        return LampEnv(manager, context)

    def controls(self) -> Mapping[str, Sequence[Any]]:
        return {"dark": [look_in_the_dark]}

    def samples(self, split: str) -> Iterator[Sample]:
        for number in range(256 if split == "train" else 64):
            yield Sample(f"{split}-{number}", (QUESTION,), list(COLOURS)[number % 2], split=split)


@hookimpl
def rlfactory_tasks(register) -> None:  # type: ignore[no-untyped-def]
    register("lamp", Lamp)


@hookimpl
def rlfactory_reward_scorers(register) -> None:  # type: ignore[no-untyped-def]
    register("colour", Colour)
