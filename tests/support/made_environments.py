"""Environments of verifiers' first interface that are made here, of its own classes, and published nowhere.

They are of kinds that no installable package has: a tool environment, one whose tools have a state, one that compares
the rollouts of a group, one that asks its client by itself, and some that fail.
"""

from __future__ import annotations

from typing import Any

import verifiers as vf
from datasets import Dataset


def data(count: int = 6) -> Dataset:
    return Dataset.from_list([{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(count)])


def right(completion: Any, answer: str) -> float:
    return float(completion[-1].content.strip() == answer)


def brief(completion: Any) -> float:
    return 1.0 / max(1, len(completion[-1].content))


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


def tools() -> vf.Environment:
    rubric = vf.Rubric(funcs=[right, brief], weights=[1.0, 0.1])
    return vf.ToolEnv(dataset=data(), tools=[add], rubric=rubric, max_turns=4)


class Counter(vf.StatefulToolEnv):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_tool(self.count, args_to_skip=["state"])

    async def setup_state(self, state: Any, **_: Any) -> Any:
        state["count"] = 0
        return state

    def update_tool_args(self, tool_name: str, tool_args: dict, messages: Any, state: Any, **_: Any) -> dict:
        return {**tool_args, "state": state}

    async def count(self, step: int, state: Any) -> str:
        """Count up.

        Args:
            step: by how much
        """
        state["count"] += step
        return str(state["count"])


def counted(state: Any) -> float:
    return float(state["count"])


def stateful() -> vf.Environment:
    return Counter(dataset=data(), rubric=vf.Rubric(funcs=[counted]), max_turns=4)


def shortest(completions: Any) -> list[float]:
    lengths = [len(each[-1].content) for each in completions]
    return [float(length == min(lengths)) for length in lengths]


def grouped() -> vf.Environment:
    return vf.SingleTurnEnv(dataset=data(), rubric=vf.Rubric(funcs=[right, shortest], weights=[1.0, 0.5]))


class TwoDrafts(vf.SingleTurnEnv):
    """Asks its client twice, by itself."""

    async def get_prompt_messages(self, state: Any) -> Any:
        prompt = await super().get_prompt_messages(state)
        draft = await state["client"].client.chat.completions.create(
            model=state["model"], messages=[{"role": "user", "content": "A draft, please."}]
        )
        state["draft"] = draft.choices[0].message.content
        return prompt


def drafted(state: Any) -> float:
    return float(bool(state["draft"]))


def own_rollout() -> vf.Environment:
    return TwoDrafts(dataset=data(), rubric=vf.Rubric(funcs=[drafted]))


class Failing(vf.MultiTurnEnv):
    async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
        raise KeyError("board")


def failing() -> vf.Environment:
    return Failing(dataset=data(), rubric=vf.Rubric(funcs=[right]), max_turns=3)


def unreachable(completion: Any) -> float:
    raise ConnectionRefusedError("the judge is down")


def judge_down() -> vf.Environment:
    return vf.SingleTurnEnv(dataset=data(), rubric=vf.Rubric(funcs=[right, unreachable]))


def clumsy(completion: Any) -> float:
    return 1.0 / int(completion[-1].content)


def careless() -> vf.Environment:
    return vf.SingleTurnEnv(dataset=data(), rubric=vf.Rubric(funcs=[right, clumsy]))
