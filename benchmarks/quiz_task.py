"""A task with many independent turns, for `turn_credit.py`: twelve questions in a row, each with a reward of its own.

What colour a thing has never changes, but nothing says it: only the reward of the turn tells. The sum of all turns is
what GRPO compares, in which each answer is drowned by the eleven others.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rlfactory_core import Message, Sample, Section, Task, ToolContext, hookimpl
from rlfactory_core.protocols import Env, EnvStart, EnvStep, ToolManager
from rlfactory_core.tiny import TinyModelRecipe, WarmStartStage
from rlfactory_core.types import StopReason

THINGS = ("Bale", "Doru", "Fimo", "Gatu", "Hepi", "Jalo", "Kemu", "Lora", "Mipa", "Nobe", "Pagu", "Rudo")
COLOURS = ("red", "blue", "green", "black", "white", "pink")
TURNS = 12


def question(thing: str) -> Message:
    return Message("user", f"What colour is {thing}?")


class QuizEnv:
    """Asks one question after the other; the state is the thing asked for."""

    def __init__(self, things: tuple[str, ...], colours: Mapping[str, str]) -> None:
        self._things, self._colours, self._asked = things, colours, 0

    async def start(self) -> EnvStart:
        return EnvStart((question(self._things[0]),), state=self._things[0])

    async def step(self, message: Message) -> EnvStep:
        thing = self._things[self._asked]
        right = message.content.strip() == answer(thing, self._colours[thing]).content
        self._asked += 1
        if self._asked == len(self._things):
            return EnvStep(stop=StopReason.ENV_DONE, reward=right / TURNS)
        following = self._things[self._asked]
        return EnvStep((question(following),), reward=right / TURNS, state=following)

    async def close(self) -> None:
        """Nothing is open."""


def answer(thing: str, colour: str) -> Message:
    return Message("assistant", f"{thing} {colour}")


def guesses(rng: random.Random) -> Iterator[Message]:
    """An episode of somebody who knows the words, and not the colours."""
    for _ in range(TURNS):
        thing = rng.choice(THINGS)
        yield question(thing)
        yield answer(thing, rng.choice(COLOURS))


class Quiz(Task):
    """Twelve questions, each about one of twelve things, without a tool."""

    class Config(Section):
        """It has no options."""

    rewards = {"env_reward": 0.0}
    reward_bounds = (0.0, 1.0)
    tiny_defaults = {
        "rollout": {"max_turns": TURNS, "max_turn_tokens": 10, "max_tokens": 500},
        "train": {"steps": 300, "prompts_per_step": 2, "group_size": 4, "lr": 1e-3, "muon_lr": 3e-3},
        "eval": {"every": 5, "limit": 32},
    }

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        colours = [*COLOURS, *COLOURS]  # each twice, so that no answer is right more often than another
        random.Random(f"colours {seed}").shuffle(colours)
        self.colours = dict(zip(THINGS, colours, strict=True))

    def samples(self, split: str) -> Iterable[Sample]:
        rng = random.Random(f"quiz {split} {self.seed}")
        for number in range(400 if split == "train" else 64):
            things = tuple(rng.choices(THINGS, k=TURNS))
            yield Sample(f"{split}-{number}", (question(things[0]),), "", {"things": things}, split)

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        return QuizEnv(sample.metadata["things"], self.colours)

    def tiny_model(self) -> TinyModelRecipe:
        return TinyModelRecipe(
            architecture={
                "hidden_size": 48,
                "intermediate_size": 96,
                "num_hidden_layers": 1,
                "num_attention_heads": 3,
                "num_key_value_heads": 3,
                "head_dim": 16,
                "max_position_embeddings": 512,
            },
            vocabulary=lambda: (" ".join(message.content for message in guesses(random.Random(n))) for n in range(100)),
            vocab_size=512,
            stages=(WarmStartStage(lambda rng: tuple(guesses(rng)), 300, 8),),
            probe=lambda rng: tuple(guesses(rng)),
            fingerprint="quiz 1",
            muon_lr=0.01,
        )


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    register("quiz_task", Quiz)
