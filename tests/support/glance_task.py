"""A task for a random model: one token, whose id has to be even for a red picture and odd for a blue one.

Without the picture half of the tokens are right, so a mean reward beyond 0.5 shows that the model sees it.
"""

from __future__ import annotations

from collections.abc import Iterator

from colours_task import picture
from rlfactory_vision import Image

from rlfactory_core import Message, Sample, Score, Task, Trajectory, hookimpl


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
