"""A task whose tool returns an image: the answer is its colour, which only a model that sees it can know."""

from __future__ import annotations

import random
from collections.abc import Iterator

import PIL.Image

from rlfactory_core import Sample, Task, ToolContext, hookimpl, tool

COLOURS = ("red", "green", "blue")
SIDE = 16  # pixels


def picture(colour: str, number: int) -> PIL.Image.Image:
    """A shade of the colour, another one for each number."""
    rng = random.Random(f"{colour} {number}")
    shade = [rng.randint(180, 255) if name == colour else rng.randint(0, 70) for name in COLOURS]
    return PIL.Image.new("RGB", (SIDE, SIDE), (shade[0], shade[1], shade[2]))


@tool
def look(context: ToolContext) -> list[object]:
    """Look at the picture."""
    data = context.sample.metadata
    return ["You see:", picture(data["colour"], data["number"])]


class Colours(Task):
    tools = [look]
    rewards = {"exact_match": 1.0}

    def samples(self, split: str) -> Iterator[Sample]:
        first = 0 if split == "train" else 1000
        for number in range(first, first + (60 if split == "train" else 12)):
            colour = COLOURS[number % 3]
            yield Sample(f"{split}-{number}", "Which colour?", colour, {"colour": colour, "number": number}, split)


@hookimpl
def rlfactory_tasks(register) -> None:  # type: ignore[no-untyped-def]
    register("colours", Colours)
