"""A task for a random model: one token, whose id has to be even for a red picture and odd for a blue one.

Without the picture half of the tokens are right, so a mean reward beyond 0.5 shows that the model sees it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import PIL.Image
from rlfactory_vision import Image

from rlfactory_core import Message, Sample, Score, Task, Trajectory, hookimpl

COLOURS = ("red", "green", "blue")


def picture(colour: str, number: int) -> PIL.Image.Image:
    """A shade of the colour, another one for each number."""
    rng = random.Random(f"{colour} {number}")
    shade = [rng.randint(180, 255) if name == colour else rng.randint(0, 70) for name in COLOURS]
    return PIL.Image.new("RGB", (16, 16), (shade[0], shade[1], shade[2]))


class Parity:
    """1 if the first sampled id is the picture's."""

    async def score(self, trajectory: Trajectory) -> Score:
        return Score(float(trajectory.turns[0].sampled_ids[0] % 2 == trajectory.sample.answer))


class Glance(Task):
    rewards = {"parity": 1.0}

    def samples(self, split: str) -> Iterator[Sample]:
        for number in range(64 if split == "train" else 16):
            image = Image.of(picture(("red", "blue")[number % 2], number + 100 * (split != "train")))
            yield Sample(f"{split}-{number}", (Message("user", str(image)),), number % 2, split=split)


@hookimpl
def rlfactory_tasks(register) -> None:  # type: ignore[no-untyped-def]
    register("glance", Glance)


@hookimpl
def rlfactory_reward_scorers(register) -> None:  # type: ignore[no-untyped-def]
    register("parity", Parity)
