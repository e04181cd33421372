import json
import re
from itertools import product
from pathlib import Path

from rlfactory_mcp import McpSource

from rlfactory_core import Message, Sample, Task, Verdict, hookimpl
from rlfactory_core.rewards import last_answer
from rlfactory_core.tiny import answer_text, call

HERE = Path(__file__).parent
ASK = (
    "Plan a trip from {home} to {city}. Travellers: {travellers}. Leave on {day} May, stay {nights} nights, "
    "spend at most EUR {budget}. Search flights there and back and a hotel, then write "
    "<answer>FLIGHT FLIGHT HOTEL</answer>."
)


def searches(trip):
    """The calls that find the flights there, the flights back, and the hotels."""
    home, city, day, nights = trip["home"], trip["city"], trip["day"], trip["nights"]
    return (
        call("find_flights", origin=home, destination=city, day=day),
        call("find_flights", origin=city, destination=home, day=day + nights),
        call("find_hotels", city=city, day=day, nights=nights),
    )


def offers(result):
    """What a search has found: name -> price and free places."""
    found = re.findall(r"^(\w+) EUR (\d+), (\d+)", result, re.M)
    return {name: (int(price), int(places)) for name, price, places in found}


def problems(plan, offered, trip):
    """Why a plan does not do.

    Args:
        offered: what each of the three searches has found.
    """
    names = plan.split()
    if len(names) != 3:
        return ["it is not two flights and a hotel"]
    found = []
    for name, choice, what in zip(names, offered, ("flight there", "flight back", "hotel")):
        if name not in choice:
            found.append(f"{name} was not offered as the {what}")
        elif choice[name][1] < trip["travellers"]:
            found.append(f"{name} has room for {choice[name][1]}")
    if not found and cost(names, offered, trip) > trip["budget"]:
        found.append(f"it costs EUR {cost(names, offered, trip)}")
    return found


def cost(names, offered, trip):
    there, back, hotel = (choice[name][0] for name, choice in zip(names, offered))
    return trip["travellers"] * (there + back) + hotel


class Trip:
    """Passes a plan that was offered in this attempt, has room for all, and is within the budget."""

    async def verify(self, trajectory):
        results = {}
        for turn in trajectory.turns:
            for made, result in zip(turn.message.tool_calls, turn.results):
                if result.fault is None:
                    results[key(made)] = result.content
        trip = trajectory.sample.metadata
        offered = [offers(results.get(key(search), "")) for search in searches(trip)]
        found = problems(last_answer(trajectory) or "", offered, trip)
        return Verdict(not found, tuple(found))


def key(made):
    return made.name, json.dumps(made.arguments, sort_keys=True)


class Travel(Task):
    tools = [McpSource(HERE / "mcp.json")]
    rewards = {"trip": 1.0, "format": 0.1}

    def samples(self, split):
        rows = (HERE / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        for number, row in enumerate(map(json.loads, rows)):
            yield Sample(f"{split}-{number}", ASK.format(**row), metadata=row, split=split)

    def solve(self, sample, messages):
        """Search, then take the cheapest plan that does."""
        if messages[-1].role != "tool":
            return Message("assistant", "", tool_calls=searches(sample.metadata))
        offered = [offers(message.content) for message in messages[-3:]]
        plans = sorted(product(*offered), key=lambda names: cost(names, offered, sample.metadata))
        good = (plan for plan in map(" ".join, plans) if not problems(plan, offered, sample.metadata))
        return Message("assistant", answer_text(next(good, "none")))


@hookimpl
def rlfactory_tasks(register):
    register("travel", Travel)


@hookimpl
def rlfactory_verifiers(register):
    register("trip", Trip)
