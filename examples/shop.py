import random

from rlfactory_core import Message, Sample, Task, ToolContext, hookimpl, tool
from rlfactory_core.tiny import answer_text, call

GOODS = ("apples", "figs", "lamps", "nuts", "pens")


@tool
def count(item: str, context: ToolContext) -> int:
    """Count how many of an item are in stock."""
    return context.sample.metadata["stock"].get(item, 0)


class Shop(Task):
    tools = [count]
    rewards = {"exact_match": 1.0, "format": 0.1}

    def samples(self, split):
        rng = random.Random(split)
        for shop in range(100 + (split == "eval"), 900, 2):  # no shop is in both splits
            stock = {each: rng.randint(10, 99) for each in GOODS}
            item = rng.choice(GOODS)
            question = f"How many {item} are in shop {shop}? Write <answer>NUMBER</answer>."
            yield Sample(f"shop-{shop}", question, str(stock[item]), {"item": item, "stock": stock}, split)

    def solve(self, sample, messages):  # optional: the right next message, for the checks and a tiny model
        if messages[-1].role == "tool":
            return Message("assistant", answer_text(messages[-1].content))
        return Message("assistant", "", tool_calls=(call("count", item=sample.metadata["item"]),))


@hookimpl
def rlfactory_tasks(register):
    register("shop", Shop)
