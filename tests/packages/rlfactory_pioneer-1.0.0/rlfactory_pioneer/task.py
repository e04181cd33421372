"""The task: which side a coin shows is drawn for each sample, so that only looking can tell."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from rlfactory_core import (
    EnvStep,
    Message,
    Sample,
    Section,
    Task,
    TinyModelRecipe,
    ToolContext,
    ToolEnv,
    ToolError,
    ToolManager,
    WarmStartStage,
    tool,
)
from rlfactory_core.errors import UsageError
from rlfactory_core.protocols import Env
from rlfactory_core.settings import Fraction, Positive
from rlfactory_core.tiny import tools_prompt

SIDES = ("heads", "tails")
COINS = ("penny", "dime", "nickel")


def question(coin: str) -> str:
    return f"Which side does the {coin} show?"


class Table(ToolEnv):
    """Counts the turns of an episode in its steps' rewards."""

    def __init__(self, sample: Sample, manager: ToolManager, context: ToolContext, bonus: float) -> None:
        super().__init__(sample, manager, context)
        self._bonus = bonus

    async def step(self, message: Message) -> EnvStep:
        step = await super().step(message)
        return replace(step, reward=self._bonus * bool(step.results))


class Coins(Task):
    """Look at a coin, then say which side it shows."""

    class Config(Section):
        """Options: ``--coins`` and so on."""

        coins: Positive = 3  # how many kinds there are
        hint: Literal["none", "some"] = "none"  # whether the question says that there is a tool
        bonus: Fraction = 0.0  # for each turn that looks

    config: Config
    rewards = {"exact_match": 1.0, "looked": 0.2, "patience": 1.0, "format": 0.1}
    defaults = {"rollout": {"max_turns": 3, "max_tool_calls": 2}}
    tiny_defaults = {
        "rollout": {"max_turn_tokens": 40, "max_tokens": 320},
        "train": {"steps": 2, "prompts_per_step": 2, "group_size": 2, "workers": 1},
        "eval": {"every": 0, "limit": 4},
    }

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        self.tools = [tool(self.look, idempotent=True)]
        self._opened = False

    async def open(self) -> None:
        self._opened = True

    async def close(self) -> None:
        self._opened = False

    async def look(self, coin: str, context: ToolContext) -> str:
        """Look at a coin.

        Args:
            coin: which one.
        """
        if coin != context.sample.metadata["coin"]:
            raise ToolError(f"There is no {coin} on the table.")
        return f"It shows {context.sample.metadata['side']}."

    def samples(self, split: str) -> Iterable[Sample]:
        rng = random.Random(f"coins {split} {self.seed}")
        for number in range(40):
            coin, side = rng.choice(COINS[: self.config.coins]), rng.choice(SIDES)
            facts = {"coin": coin, "side": side}
            yield Sample(f"{split}-{number}", question(coin), side, facts, coin)

    def adapt(self, sample: Sample) -> Sample:
        return replace(sample, metadata={"coin": COINS[0], "side": str(sample.answer), **sample.metadata})

    def check(self, samples: Sequence[Sample]) -> None:
        wrong = next((sample for sample in samples if sample.answer not in SIDES), None)
        if wrong is not None:
            raise UsageError(f"The sample {wrong.id} has the answer {wrong.answer!r}; expected heads or tails.")

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        return Table(sample, manager, context, self.config.bonus)

    def controls(self) -> Mapping[str, Sequence[Any]]:
        return {"blind": [tool(self.look_away, name="look")]}

    async def look_away(self, coin: str) -> str:
        """Look at a coin.

        Args:
            coin: which one.
        """
        return "It is dark."

    def tiny_model(self) -> TinyModelRecipe:
        return TinyModelRecipe(
            architecture={
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "max_position_embeddings": 512,
            },
            vocabulary=self._vocabulary,
            vocab_size=560,
            stages=(WarmStartStage(demonstrate, 60, 8),),
            probe=demonstrate,
            fingerprint="coins 1",
            muon_lr=0.01,
        )

    def _vocabulary(self) -> Iterable[str]:
        rng = random.Random("vocabulary")
        yield from [tools_prompt([item.spec for item in self.tools])] * 20
        for _ in range(100):
            yield "\n".join(message.content for message in demonstrate(rng))


def demonstrate(rng: random.Random) -> tuple[Message, ...]:
    coin, side = rng.choice(COINS), rng.choice(SIDES)
    call = '<tool_call>\n{"name": "look", "arguments": {"coin": "' + coin + '"}}\n</tool_call>'
    answer = Message("assistant", f"<answer> {side} </answer>")
    looked = Message("tool", f"It shows {side}.", name="look")
    return Message("user", question(coin)), Message("assistant", call), looked, answer
