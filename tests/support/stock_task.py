"""A one-file plugin as an author writes it: a tool, samples, and how one is solved. Nothing is said of a model."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from rlfactory_core import Message, Sample, Task, ToolContext, hookimpl, tool
from rlfactory_core.tiny import answer_text, call

ITEMS = ("apples", "beans", "carrots", "figs", "lemons", "olives", "pears", "plums")


@tool(stateful=True)
async def count(item: str, context: ToolContext) -> str:
    """Count what is in the shop.

    Args:
        item: what to count.
    """
    return str(context.sample.metadata["stock"].get(item, "none"))


class Stock(Task):
    """Each sample has a shop of its own, so that what is in it has to be looked up."""

    tools = [count]
    rewards = {"exact_match": 1.0, "format": 0.1}

    def samples(self, split: str) -> Iterable[Sample]:
        rng = random.Random(f"{split} {self.seed}")
        for number in range(400 if split == "train" else 100):
            stock = {item: rng.randrange(100) for item in ITEMS}
            item = rng.choice(ITEMS)
            asked = f"How many {item} are in the shop?"
            yield Sample(f"{split}-{number}", asked, str(stock[item]), {"item": item, "stock": stock}, split)

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        if messages[-1].role == "tool":
            return Message("assistant", answer_text(messages[-1].content))
        return Message("assistant", "", tool_calls=(call("count", item=sample.metadata["item"]),))


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    register("stock_task", Stock)
