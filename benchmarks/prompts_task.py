"""A task of long prompts for `shared_prompts.py`: made-up words, a beginning that all prompts share, and one turn.

The reward is as good as random, so that nearly every group teaches something and all of its attempts are trained on.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from typing import Any

from rlfactory_core import Message, Sample, Section, Task, ToolContext, hookimpl
from rlfactory_core.protocols import Env, EnvStart, EnvStep, ToolManager
from rlfactory_core.types import StopReason

SYLLABLES = [first + last for first in "bdfgklmnprst" for last in "aeiou"]
WORDS = [one + other for one in SYLLABLES[::2] for other in SYLLABLES[1::4]]


def text(words: int, seed: str) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


class OneTurn:
    """Shows the prompt, and ends after the first turn."""

    def __init__(self, sample: Sample) -> None:
        self._messages = sample.messages

    async def start(self) -> EnvStart:
        return EnvStart(self._messages)

    async def step(self, message: Message) -> EnvStep:
        return EnvStep(stop=StopReason.ENV_DONE, reward=zlib.crc32(repr(message).encode()) % 2)

    async def close(self) -> None:
        """Nothing is open."""


class Prompts(Task):
    """Prompts of so many words."""

    class Config(Section):
        shared: int = 60
        """Words that all prompts begin with."""
        own: int = 260
        """Words of each prompt behind them."""

    rewards = {"env_reward": 0.0}
    reward_bounds = (0.0, 1.0)

    def samples(self, split: str) -> Iterator[Sample]:
        beginning = Message("system", text(self.config.shared, "all"))
        for number in range(64):
            question = Message("user", text(self.config.own, f"{split} {number}"))
            yield Sample(f"{split}-{number}", (beginning, question), "", split=split)

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        return OneTurn(sample)


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    register("prompts_task", Prompts)
