"""The search task for distillation: questions that need two searches, and a model that is careless in every turn.

Its warm start is the task's own, with a second stage that shows more mistakes. What it has to do in each turn it does
now and then, and all of it in one attempt next to never. Only the right answer is rewarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rlfactory_search.demonstrations import Carelessness, Demonstrator
from rlfactory_search.task import SearchTask

from rlfactory_core import Sample, hookimpl
from rlfactory_core.hookspecs import Register
from rlfactory_core.tiny import TinyModelRecipe

CARELESS = Carelessness(stop_early=0.95, clumsy_query=0.6, wrong_copy=0.5, format_slip=0.5)


class TwoHopSearch(SearchTask):
    """`SearchTask` otherwise, with the same tokenizer."""

    class Config(SearchTask.Config):
        short: bool = False
        """For a miniature: a few steps of the warm start."""

    config: Config
    rewards = {"exact_match": 1.0}

    def samples(self, split: str) -> Iterator[Sample]:
        return (sample for sample in super().samples(split) if sample.slice == "two_hop")

    def tiny_model(self) -> TinyModelRecipe | None:
        recipe = super().tiny_model()
        if recipe is None:
            return None
        first, second = recipe.stages
        assert isinstance(second.demonstrate, Demonstrator)
        careless = replace(second, demonstrate=replace(second.demonstrate, two_hop=1.0, care=CARELESS))
        stages = (replace(careless, max_steps=5),) if self.config.short else (first, careless)
        return replace(recipe, stages=stages, fingerprint=f"{recipe.fingerprint}-{CARELESS}")


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("two_hop_search", TwoHopSearch)
