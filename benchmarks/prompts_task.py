"""A task of long prompts for `shared_prompts.py`: made-up words, a beginning that all prompts share, and one turn.

Every group has attempts to compare, so that all of them are trained on, whatever the policy writes.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from typing import Any

from rlfactory_core import Message, Sample, Score, Section, Task, Trajectory, hookimpl

SYLLABLES = [first + last for first in "bdfgklmnprst" for last in "aeiou"]
WORDS = [one + other for one in SYLLABLES[::2] for other in SYLLABLES[1::4]]


def text(words: int, seed: str) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


class Luck:
    """A reward that no policy can learn: a number of its own for each text, so that no two attempts have the same."""

    async def score(self, trajectory: Trajectory) -> Score:
        return Score(zlib.crc32(str(trajectory.turns[-1].sampled_ids).encode()) / 2**32)


class Prompts(Task):
    """Prompts of so many words."""

    class Config(Section):
        shared: int = 60
        """Words that all prompts begin with."""
        own: int = 260
        """Words of each prompt behind them."""

    rewards = {"luck": 1.0}

    def samples(self, split: str) -> Iterator[Sample]:
        beginning = Message("system", text(self.config.shared, "all"))
        for number in range(64):
            question = Message("user", text(self.config.own, f"{split} {number}"))
            yield Sample(f"{split}-{number}", (beginning, question), "", split=split)


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    register("prompts_task", Prompts)


@hookimpl
def rlfactory_reward_scorers(register: Any) -> None:
    register("luck", Luck)
