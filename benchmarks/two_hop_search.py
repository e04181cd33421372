"""The search task for distillation: a kind of question that needs two searches, and a model that makes one for it.

The model learns from correct demonstrations. But those of this kind break off after the first search, with an answer,
and at last it sees these alone. So it can do all that it needs, and does not do it: none of its attempts succeeds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rlfactory_search.demonstrations import Carelessness, Demonstrator
from rlfactory_search.task import TRAIN_WORLDS, SearchTask
from rlfactory_search.worlds import Question, World

from rlfactory_core import Message, Sample, hookimpl
from rlfactory_core.hookspecs import Register
from rlfactory_core.tiny import TinyModelRecipe

KIND = ("seat", "country")  # Which country is the company based in?


@dataclass(frozen=True, slots=True)
class BreaksOff(Demonstrator):
    """Correct demonstrations, but for questions of the kind.

    Args:
        alone: show no others.
    """

    alone: bool = False

    def __call__(self, rng: random.Random) -> tuple[Message, ...]:
        if not self.alone:
            return Demonstrator.__call__(self, rng)
        world = rng.choice(self.worlds)
        questions = [question for question in world.questions if question.relations == KIND]
        return self.episode(world, rng.choice(questions), rng)

    def episode(self, world: World, question: Question, rng: random.Random) -> tuple[Message, ...]:
        care = Carelessness(stop_early=float(question.relations == KIND))
        return Demonstrator(self.worlds, self.search, self.two_hop, care).episode(world, question, rng)


class TwoHopSearch(SearchTask):
    """`SearchTask` otherwise, with the same tokenizer."""

    class Config(SearchTask.Config):
        short: bool = False
        """For a miniature: a few steps of the warm start."""

    config: Config

    def samples(self, split: str) -> Iterator[Sample]:
        for name in [f"train-{number}" for number in range(TRAIN_WORLDS)] if split == "train" else ["eval"]:
            world = self.world(name)
            for index, question in enumerate(world.questions):
                if question.relations == KIND:
                    yield world.sample(question, split, f"{name}/{index}")

    def tiny_model(self) -> TinyModelRecipe | None:
        recipe = super().tiny_model()
        if recipe is None:
            return None
        first, probe = recipe.stages[0], recipe.probe
        assert isinstance(first.demonstrate, Demonstrator)
        assert isinstance(probe, Demonstrator)
        worlds, search = first.demonstrate.worlds, probe.search
        stages = (
            replace(first, demonstrate=BreaksOff(worlds, search, 0.5)),
            replace(first, demonstrate=BreaksOff(worlds, search, 1.0, alone=True), max_steps=100, target=0.0),
        )
        if self.config.short:
            stages = (replace(stages[1], max_steps=5),)
        return replace(
            recipe,
            stages=stages,
            probe=BreaksOff(probe.worlds, search, 0.5),
            fingerprint=f"{recipe.fingerprint}-breaks-off",
        )


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("two_hop_search", TwoHopSearch)
