"""A one-file plugin whose tiny model is warm-started in seconds: look a colour up instead of guessing it.

What colour a thing has is drawn anew for every sample, so nothing can be known without the tool. The demonstrator
mostly guesses; a policy that learns looks. The tool's schema is that of the search plugin, so a model made here can be
run on that plugin too.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rlfactory_core import Message, Sample, Score, Section, Task, ToolContext, Trajectory, hookimpl, tool
from rlfactory_core.clients import OpenAIClient
from rlfactory_core.errors import ToolUnavailableError
from rlfactory_core.protocols import Env, EnvStep, PoolRequest, Request, ToolManager
from rlfactory_core.rewards.scorers import last_answer
from rlfactory_core.rollout import ToolEnv
from rlfactory_core.tiny import TinyModelRecipe, WarmStartStage
from rlfactory_core.types import SamplingParams, ToolCall, ToolSpec, Verdict

THINGS = ("Bale", "Doru", "Fimo", "Gatu", "Hepi", "Jalo", "Kemu", "Lora", "Mipa", "Nobe", "Pagu", "Rudo")
SYSTEM = """system
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
{"name": <function-name>, "arguments": <args-json-object>}
"""  # what the chat template says, so that it becomes few tokens
COLOURS = ("red", "blue", "green", "black", "white", "pink", "brown", "gold")


def question(thing: str) -> str:
    return f"What colour is {thing}?"


def call(thing: str) -> str:
    arguments = {"name": "search", "arguments": {"query": thing}}
    return f"<tool_call>\n{json.dumps(arguments)}\n</tool_call>"


def answer(colour: str) -> str:
    return f"<answer> {colour} </answer>"


@dataclass(frozen=True)
class Demonstrator:
    """Looks the colour up, or guesses it: with probability ``guess``."""

    guess: float

    def __call__(self, rng: random.Random) -> tuple[Message, ...]:
        thing, colour = rng.choice(THINGS), rng.choice(COLOURS)
        asked = Message("user", question(thing))
        if rng.random() < self.guess:
            return asked, Message("assistant", answer(rng.choice(COLOURS)))
        found = Message("tool", f"1: {colour}", name="search")
        return asked, Message("assistant", call(thing)), found, Message("assistant", answer(colour))


class RewardingEnv(ToolEnv):
    """Rewards the turns whose search finds something."""

    def __init__(self, sample: Sample, manager: ToolManager, context: ToolContext, reward: float) -> None:
        super().__init__(sample, manager, context)
        self._reward = reward

    async def step(self, message: Message) -> EnvStep:
        step = await super().step(message)
        return replace(step, reward=self._reward * any(result.content.startswith("1:") for result in step.results))


class Colours(Task):
    class Config(Section):
        samples: int = 400
        breaks: Literal["", "raise", "die"] = ""  # what the second process does while it opens
        hangs: bool = False  # the tool never answers while training
        lost: float = 0.0  # share of the calls in training that get no answer
        loses: int = 0  # of so many calls of a process in training, the last gets no answer
        fails_after: int = 0  # so many calls in training get an answer, then each raises
        down_for: int = 0  # so many calls in training get no answer, then all do
        waits: float = 0.0  # seconds of each call, in which nothing is computed
        head_dim: int = 16  # vLLM's CPU attention takes 32
        turn_reward: float = 0.0  # for each turn whose search finds something

    config: Config
    rewards = {"exact_match": 1.0, "format": 0.1}
    tiny_defaults = {
        "rollout": {"max_turns": 3, "max_tool_calls": 2, "max_turn_tokens": 40, "max_tokens": 320},
        "train": {"steps": 8, "prompts_per_step": 8, "group_size": 4, "lr": 1e-3, "muon_lr": 3e-3},
        "eval": {"every": 0, "limit": 40},
        "checkpoint": {"every": 2},
    }

    def samples(self, split: str) -> Iterable[Sample]:
        rng = random.Random(f"colours {split} {self.seed}")
        for number in range(self.config.samples):
            thing, colour = rng.choice(THINGS), rng.choice(COLOURS)
            facts = {"thing": thing, "colour": colour}
            yield Sample(f"{split}-{number}", question(thing), colour, facts, split)

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        if messages[-1].role == "tool":
            return Message("assistant", answer(str(sample.answer)))
        query = {"query": sample.metadata["thing"]}
        return Message("assistant", "", tool_calls=(ToolCall("call_0", "search", json.dumps(query), query),))

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        self.tools = [tool(self.search, idempotent=True)]
        self._calls = 0

    async def search(self, query: str, context: ToolContext) -> str:
        """Search the corpus.

        Args:
            query: what to look for.
        """
        await asyncio.sleep(self.config.waits)
        if self.config.hangs and context.sample.split == "train":
            await asyncio.Event().wait()
        if context.sample.split == "train" and self._no_answer(context.trajectory_id):
            raise ToolUnavailableError("the corpus is away")
        if context.sample.split == "train" and 0 < self.config.fails_after < self._calls:
            raise RuntimeError("the corpus is locked")
        thing, colour = context.sample.metadata["thing"], context.sample.metadata["colour"]
        return f"1: {colour}" if query.strip() == thing else "No results."

    def _no_answer(self, trajectory_id: str) -> bool:
        self._calls += 1
        if self.config.loses and self._calls % self.config.loses == 0:
            return True
        drawn = random.Random(f"{self._calls} {trajectory_id}").random()
        return self._calls <= self.config.down_for or drawn < self.config.lost

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        return RewardingEnv(sample, manager, context, self.config.turn_reward)

    async def open(self) -> None:
        if self.config.breaks and multiprocessing.parent_process():
            if self.config.breaks == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the tools of this process do not open")

    async def search_nothing(self, query: str) -> str:
        """Search the corpus.

        Args:
            query: what to look for.
        """
        return "No results."

    def controls(self) -> Mapping[str, Sequence[Any]]:
        return {"no_results": [tool(self.search_nothing, name="search")]}

    def tiny_model(self) -> TinyModelRecipe:
        looks = Demonstrator(guess=0.0)
        return TinyModelRecipe(
            architecture={
                "hidden_size": 48,
                "intermediate_size": 96,
                "num_hidden_layers": 1,
                "num_attention_heads": 3,
                "num_key_value_heads": 3,
                "head_dim": self.config.head_dim,
                "max_position_embeddings": 512,
            },
            vocabulary=lambda: vocabulary(self.tools[0].spec),
            vocab_size=640,
            stages=(
                WarmStartStage(looks, 600, 8, target=0.95),
                WarmStartStage(Demonstrator(guess=0.6), 40, 16),
            ),
            probe=looks,
            fingerprint="colours 1",
            muon_lr=0.01,
        )


class Asked:
    """What a model that the engine serves makes of the answer, as a digit; not among the task's own rewards."""

    DIGIT = {"type": "object", "properties": {"digit": {"enum": [*range(10)]}}, "required": ["digit"]}

    def __init__(self, model: str = "") -> None:
        self.pool = PoolRequest(model, 1, 1)
        self._clients: list[OpenAIClient] = []

    def use_pool(self, urls: Sequence[str], model: str) -> None:
        self._clients = [OpenAIClient(url, model) for url in urls]

    async def open(self, task: Task) -> None:
        for client in self._clients:
            await client.open(probe=False)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    async def score(self, trajectory: Trajectory) -> Score:
        asked = Message("user", f"{trajectory.sample.answer}: {last_answer(trajectory)}")
        form = {"type": "json_schema", "json_schema": {"name": "digit", "schema": self.DIGIT}}
        said = await self._clients[0].answer(Request([asked], (), SamplingParams(64, 0.0)), {"response_format": form})
        assert said is not None
        return Score(json.loads(said.message.content)["digit"] / 10)


class Hasty:
    """A reward that can be hacked: it means to reward short work, and pays for not looking at all."""

    async def score(self, trajectory: Trajectory) -> Score:
        return Score(float(trajectory.num_tool_calls == 0))


class Looked:
    """A verifier that takes its time: whether the answer was looked up; not among the task's own rewards."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        await asyncio.sleep(0.05)
        return Verdict(any(result.content.startswith("1:") for turn in trajectory.turns for result in turn.results))


def vocabulary(spec: ToolSpec) -> Iterator[str]:
    rng = random.Random("vocabulary")
    schema = {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
    yield from [SYSTEM, json.dumps({"type": "function", "function": schema})] * 30
    for _ in range(200):
        yield "\n".join(message.content for message in Demonstrator(guess=0.5)(rng))


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    register("tiny_task", Colours)


@hookimpl
def rlfactory_reward_scorers(register: Any) -> None:
    register("asked", Asked)
    register("hasty", Hasty)


@hookimpl
def rlfactory_verifiers(register: Any) -> None:
    register("looked", Looked)
