"""The model that a task brings itself, as a run's configuration wants it: with its tools and its chat format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rlfactory_core.cache import digest
from rlfactory_core.chat.select import configured_format
from rlfactory_core.config import ChatConfig, RunConfig
from rlfactory_core.engines.local.default_model import DefaultModel, build_default_model
from rlfactory_core.engines.local.model_cache import model_folder
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.errors import ModelError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import Tool
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.task import Task
from rlfactory_core.tiny import TinyModelRecipe
from rlfactory_core.types import ToolSpec


@dataclass(frozen=True, slots=True)
class OwnModel:
    """What it is built from; every process of a run makes its own."""

    recipe: TinyModelRecipe
    tools: Sequence[ToolSpec]
    config: RunConfig
    registry: Registry

    @classmethod
    def of(cls, task: Task, config: RunConfig, registry: Registry) -> OwnModel:
        """The task's, whether it is open or not.

        Raises:
            ModelError: it brings none.
        """
        recipe = task.tiny_model()
        if recipe is None:
            raise ModelError(
                f"Plugin '{config.plugin}' brings no model of its own. Name one with --model (a folder or a hub id). "
                "An author gives the task one by overriding Task.solve, which shows how a sample is solved."
            )
        if recipe.chat_template or config.chat != ChatConfig():
            # How turns are written then stands in the code of the plugins in use.
            prints = (each.digest for each in registry.fingerprints())
            print_ = digest([recipe.fingerprint, config.chat.model_dump_json(), *prints])
            recipe = replace(recipe, fingerprint=print_)
        own = [tool.spec for tool in task.tools if isinstance(tool, Tool)]
        return cls(recipe, own if recipe.tools is None else recipe.tools, config, registry)

    def folder(self, size: int) -> Path:
        """Where the cache has it, if it has it, built by so many processes."""
        return model_folder(self.recipe, self.tools, self.config.seed, size)

    def build(self, workers: Workers, progress: Progress) -> DefaultModel:
        """By all processes together; see `build_default_model`."""
        chat = partial(configured_format, self.config.chat, self.registry)
        return build_default_model(self.recipe, self.tools, self.config.seed, workers, progress, chat)
