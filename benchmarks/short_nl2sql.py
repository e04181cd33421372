"""For a miniature: the text-to-SQL task, with a few steps of each stage of its warm start."""

from __future__ import annotations

from dataclasses import replace

from rlfactory_nl2sql.task import Nl2SqlTask

from rlfactory_core import hookimpl
from rlfactory_core.hookspecs import Register
from rlfactory_core.tiny import TinyModelRecipe

STEPS = 5


class ShortNl2Sql(Nl2SqlTask):
    """`Nl2SqlTask` otherwise."""

    def tiny_model(self) -> TinyModelRecipe | None:
        recipe = super().tiny_model()
        return recipe and replace(recipe, stages=tuple(replace(stage, max_steps=STEPS) for stage in recipe.stages))


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("short_nl2sql", ShortNl2Sql)
