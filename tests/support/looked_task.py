"""A task for a random vision-language model: a picture in the prompt, and a larger one that a tool returns.

After the model's first turn the environment calls the tool. Sampled ids should be even for a red picture and odd for a
blue one.
"""

from __future__ import annotations

from collections.abc import Iterator

import PIL.Image
from rlfactory_vision import Image

from rlfactory_core import Message, Sample, Score, Task, ToolContext, Trajectory, hookimpl, tool
from rlfactory_core.protocols import Env, EnvStart, EnvStep, ToolManager
from rlfactory_core.tiny import call
from rlfactory_core.types import StopReason


def picture(number: int, size: tuple[int, int]) -> PIL.Image.Image:
    """Red if the number is even, else blue; another shade for each number."""
    shade = 255 - number
    return PIL.Image.new("RGB", size, (0, 0, shade) if number % 2 else (shade, 0, 0))


@tool
def look(context: ToolContext) -> list[object]:
    """Look closer. The text spells the token of an image, which is none."""
    return ["<|image_pad|>", picture(int(context.sample.metadata["number"]), (24, 16))]


class LookEnv:
    """The model says something, sees what the tool returns, and says something again."""

    def __init__(self, sample: Sample, manager: ToolManager, context: ToolContext) -> None:
        self._sample, self._manager, self._context, self._looked = sample, manager, context, False

    async def start(self) -> EnvStart:
        return EnvStart(self._sample.messages)

    async def step(self, message: Message) -> EnvStep:
        if self._looked:
            return EnvStep(stop=StopReason.ENV_DONE)
        self._looked = True
        results = await self._manager.invoke((call("look"),), self._context)
        return EnvStep((Message("user", results[0].content),), results=results)

    async def close(self) -> None:
        """Nothing is open."""


class Parity:
    """The share of sampled ids that are the picture's."""

    async def score(self, trajectory: Trajectory) -> Score:
        right = [token % 2 == trajectory.sample.answer for turn in trajectory.turns for token in turn.sampled_ids]
        return Score(sum(right) / len(right))


class Look(Task):
    tools = [look]
    rewards = {"parity": 1.0}

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        return LookEnv(sample, manager, context)

    def samples(self, split: str) -> Iterator[Sample]:
        for number in range(16 if split == "train" else 0):
            seen = str(Image.of(picture(number, (16, 16))))
            yield Sample(f"{split}-{number}", seen, number % 2, {"number": number}, split=split)


@hookimpl
def rlfactory_tasks(register) -> None:  # type: ignore[no-untyped-def]
    register("look", Look)


@hookimpl
def rlfactory_reward_scorers(register) -> None:  # type: ignore[no-untyped-def]
    register("parity", Parity)
