"""The search task for distillation: questions that need two searches, and a model that searches once.

Its tiny model learns from correct demonstrations, of which those with two searches break off after the first one, with
an answer. So it copies names as well as the task's usual model does, and no attempt of it succeeds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rlfactory_search.demonstrations import Carelessness, Demonstrator
from rlfactory_search.task import SearchTask

from rlfactory_core import Sample, hookimpl
from rlfactory_core.hookspecs import Register
from rlfactory_core.tiny import TinyModelRecipe


class TwoHopSearch(SearchTask):
    """`SearchTask` otherwise, with the same tokenizer."""

    def samples(self, split: str) -> Iterable[Sample]:
        return (sample for sample in super().samples(split) if sample.slice == "two_hop")

    def tiny_model(self) -> TinyModelRecipe | None:
        recipe = super().tiny_model()
        if recipe is None:
            return None
        first = recipe.stages[0]
        demonstrate, probe = first.demonstrate, recipe.probe
        assert isinstance(demonstrate, Demonstrator)
        assert isinstance(probe, Demonstrator)
        once = {"two_hop": 0.5, "care": Carelessness(stop_early=1.0)}
        return replace(
            recipe,
            stages=(replace(first, demonstrate=replace(demonstrate, **once)),),
            probe=replace(probe, **once),
            fingerprint=f"{recipe.fingerprint}-searches-once",
        )


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("two_hop_search", TwoHopSearch)
