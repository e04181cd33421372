"""A one-file plugin in which the model's text decides everything: rewards of each kind and faults of each kind.

Its chat format is the toy one, so that it needs no tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rlfactory_devkit import ToyChatFormat

from rlfactory_core import Message, Sample, Score, Task, Trajectory, hookimpl, tool
from rlfactory_core.context import ToolContext
from rlfactory_core.errors import ToolUnavailableError, VerifierError
from rlfactory_core.protocols import EnvStep, ToolManager
from rlfactory_core.rewards.scorers import last_answer
from rlfactory_core.rollout import ToolEnv

MAX_TOKENS, MAX_TURN_TOKENS = 1200, 200
# Three are plain, so that not too many attempts of the step are masked.
CASES = (
    "plain",
    "second",
    "third",
    "equal",
    "alike",
    "infra",
    "verifier",
    "single",
    "none",
    "full",
    "cut",
    "raises",
)


@tool
async def look(where: str, worth: float = 0.0, bonus: float = 0.0) -> str:
    """Look somewhere.

    Args:
        where: the place; nothing answers from afar.
        worth: what the environment gives for it.
        bonus: what the process reward gives for it.
    """
    if where == "far":
        raise ToolUnavailableError("no answer")
    return f"nothing {where}"


class WorthEnv(ToolEnv):
    """Rewards each step by what its calls say they are worth."""

    async def step(self, message: Message) -> EnvStep:
        if "raise" in message.content:
            raise RuntimeError("the environment has a bug")
        step = await super().step(message)
        return replace(step, reward=sum(_said(call, "worth") for call in message.tool_calls))


class Told:
    """The number that the answer is; an answer that is none cannot be judged, and no answer scores 0."""

    inline = True

    async def score(self, trajectory: Trajectory) -> Score:
        answer = last_answer(trajectory)
        try:
            return Score(float(answer or 0.0))
        except ValueError:
            raise VerifierError(f"{answer} is no number") from None


class Bonus:
    """A process reward: for each turn what its calls say."""

    async def score(self, trajectory: Trajectory) -> Score:
        said = (sum(_said(call, "bonus") for call in turn.message.tool_calls) for turn in trajectory.turns)
        return Score(0.0, turn_rewards=tuple(said))


class Parity(Task):
    tools = [look]
    rewards = {"told": 1.0, "bonus": 0.5}

    def samples(self, split: str) -> Iterable[Sample]:
        for case in CASES:
            yield Sample(case, "?" * MAX_TOKENS if case == "full" else f"Look around: {case}", slice=case)

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> WorthEnv:
        return WorthEnv(sample, manager, context)


class Toy(ToyChatFormat):
    def __init__(self, tokenizer: Any, thinking: bool) -> None: ...


def _said(call: Any, name: str) -> float:
    return float((call.arguments or {}).get(name, 0.0))


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    register("parity_task", Parity)


@hookimpl
def rlfactory_reward_scorers(register: Any) -> None:
    register("told", Told)
    register("bonus", Bonus)


@hookimpl
def rlfactory_chat_formats(register: Any) -> None:
    register("toy", Toy)
