"""A task's own tiny model: what it is built from, and its folder in the cache.

Nothing here imports torch, which takes longer than to look a folder up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rlfactory_core.cache import cache_root, digest
from rlfactory_core.chat.families.qwen3 import Qwen3Format
from rlfactory_core.chat.settings import ChatConfig
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.errors import ModelError
from rlfactory_core.gateway import AgentConfig
from rlfactory_core.plugins.fingerprint import Fingerprint
from rlfactory_core.protocols import ChatFormat, Tool
from rlfactory_core.tasks.demonstrations import recipe_of
from rlfactory_core.tasks.setup import TaskSetup
from rlfactory_core.tasks.solving import demonstrated_tools
from rlfactory_core.tiny import TinyModelRecipe
from rlfactory_core.types import ToolSpec
from rlfactory_core.version import __version__

_SOURCES = ("tiny_model.py", "warmstart.py")


@dataclass(frozen=True, slots=True)
class TinyModel:
    """What a tiny model is built from. Each process of a run makes this description.

    Args:
        make_chat: the chat format of the recipe's tokenizer, which writes the demonstrations.
    """

    recipe: TinyModelRecipe
    tools: Sequence[ToolSpec]
    seed: int
    make_chat: Callable[[Any], ChatFormat] = Qwen3Format

    @classmethod
    def of(
        cls,
        config: EngineSettings,
        setup: TaskSetup,
        fingerprints: Sequence[Fingerprint],
        make_chat: Callable[[Any], ChatFormat] = Qwen3Format,
    ) -> TinyModel:
        """The model of a task, which need not be open.

        Args:
            fingerprints: of the plugins in use.

        Raises:
            ModelError: the task has no model of its own.
        """
        plugins = digest([setup.env, *_agent_code(setup.agent), *(each.digest for each in fingerprints)])  # their code
        recipe = recipe_of(setup, plugins)
        if recipe is None:
            raise ModelError(
                f"Plugin '{setup.plugin}' brings no model of its own. Name one with --model (a folder or a hub id). "
                "An author gives the task one by overriding Task.solve or Task.demonstrate, which show how it is done."
            )
        if recipe.chat_template or config.chat != ChatConfig():
            # The code of the plugins in use decides how turns are written.
            fingerprint = digest([recipe.fingerprint, config.chat.model_dump_json(), plugins])
            recipe = replace(recipe, fingerprint=fingerprint)
        tools = _tools(setup) if recipe.tools is None else recipe.tools
        return cls(recipe, tools, config.seed, make_chat)

    def folder(self, processes: int) -> Path:
        """Where so many processes put the model; its name is a hash of all that it depends on."""
        recipe, code = self.recipe, Path(__file__).parent / "local" / "tiny"
        stages = [(stage.max_steps, stage.batch, stage.target, stage.context_weight) for stage in recipe.stages]
        facts = {
            "recipe": [recipe.fingerprint, dict(recipe.architecture), recipe.vocab_size, stages],
            "chat": [recipe.chat_template, recipe.special_tokens],
            "rates": [recipe.lr, recipe.muon_lr, recipe.warmup_steps],
            "tools": [[tool.name, tool.description, dict(tool.parameters)] for tool in self.tools],
            "run": [self.seed, processes, __version__, version("torch")],
            "sources": [(code / name).read_text(encoding="utf-8") for name in _SOURCES],
        }
        return cache_root() / "models" / digest([json.dumps(facts, sort_keys=True)])


def _tools(setup: TaskSetup) -> Sequence[ToolSpec]:
    """The tools that prompts show: the task's, or those that an agent offers."""
    if not setup.has_agent:
        return [tool.spec for tool in setup.task.tools if isinstance(tool, Tool)]
    # In a thread of its own, because the engine calls this within a running event loop.
    with ThreadPoolExecutor(1, "rlfactory-agent-tools") as thread:
        return thread.submit(lambda: asyncio.run(demonstrated_tools(setup))).result()


def _agent_code(agent: AgentConfig) -> list[str]:
    """The command of an agent, and the content of the files that it names."""
    files = [Path(word) for word in agent.command.split() if Path(word).is_file()]
    return [agent.command, *(file.read_text(encoding="utf-8", errors="replace") for file in files)]
