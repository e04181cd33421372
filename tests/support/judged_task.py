"""The tiny task of colours with a verifier that takes its time, to be composed with a judge; and a judge of colours."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from typing import Any

from fake_openai import Answer, Reply, said
from tiny_task import COLOURS, Colours

from rlfactory_core import Trajectory, Verdict, hookimpl

SECONDS = 0.05  # of the verifier, and of the judge's replies
_QUOTED = re.compile(r"<quoted:(\w+)>\n(.*?)\n</quoted:\1>", re.DOTALL)


class LooksItUp:
    """Passed where the attempt calls a tool."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        await asyncio.sleep(SECONDS)
        return Verdict(trajectory.num_tool_calls > 0, ("it looks",) if trajectory.num_tool_calls else ("it guesses",))


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    register("judged_task", Colours)


@hookimpl
def rlfactory_verifiers(register: Any) -> None:
    register("looks_it_up", LooksItUp)


def judge_of_colours(seconds: float = 0.0) -> Answer:
    """A judge that likes colours early in the list, whatever the truth is; it can score, score turns and rank."""

    def answer(body: Mapping[str, Any]) -> Reply:
        time.sleep(seconds)
        return said(_opinion(str(body["messages"][-1]["content"])))

    return answer


def _opinion(prompt: str) -> str:
    likings = [_liking(text) for _, text in _QUOTED.findall(prompt)]
    if turns := re.search(r"each of the ([0-9]+) turns", prompt):
        return json.dumps({"scores": [number % 11 for number in range(int(turns[1]))]})
    if ranked := re.search(r"Rank all ([0-9]+) candidates", prompt):
        count = int(ranked[1])
        order = sorted(range(count), key=lambda place: -likings[-count:][place])
        return json.dumps({"ranking": [place + 1 for place in order]})
    return json.dumps({"score": likings[-1] if likings else 0})


def _liking(text: str) -> int:
    found = [len(COLOURS) - place for place, colour in enumerate(COLOURS) if colour in text]
    return found[0] if found else 0
