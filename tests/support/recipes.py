"""Recipes of tiny models of tasks that say how they are solved, and the demonstrations in them."""

from __future__ import annotations

import random

from rlfactory_core import Task, TinyModelRecipe
from rlfactory_core.tasks.demonstrations import recipe_of
from rlfactory_core.tasks.setup import TaskSetup
from rlfactory_core.tiny import Demonstration


def made(task: Task) -> TinyModelRecipe:
    recipe = recipe_of(TaskSetup(task))
    assert recipe is not None
    return recipe


def shown(recipe: TinyModelRecipe, stage: int, number: int = 400) -> list[Demonstration]:
    rng = random.Random(0)
    return [recipe.stages[stage].demonstrate(rng) for _ in range(number)]
