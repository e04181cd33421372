"""The configuration of a run, composed of the sections of the rooms. Each is a frozen model that refuses unknown keys.

Values come from these defaults, the task's own ``defaults``, ``--config FILE.yaml`` and the command line; later sources
override earlier ones. The result is saved as ``config.yaml`` in the run's folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.gateway import AgentConfig
from rlfactory_core.rewards.settings import Rewards
from rlfactory_core.rollout.settings import RolloutConfig
from rlfactory_core.settings import Section
from rlfactory_core.tasks.settings import DataConfig
from rlfactory_core.tools.settings import ToolsConfig

__all__ = ["RunConfig", "TaskShare"]


class TaskShare(Section):
    """One of several tasks that a run trains together. What is left out is as in the rest of the configuration."""

    plugin: str | None = None
    """The name of an installed plugin, or a one-file plugin; none: the name of this task."""
    weight: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1.0
    """Its part of each step's prompts, relative to the other tasks'."""
    task: dict[str, Any] = {}
    """The task's own keys, checked by its ``Config``."""
    rewards: Rewards = None
    env: str | None = None
    data: DataConfig = DataConfig()
    rollout: dict[str, Any] = {}
    """The limits of an attempt that differ: max_turns, max_tool_calls, max_turn_tokens, max_tokens, env_deadline_s,
    context, context_tokens, retries."""
    tools: dict[str, Any] = {}
    """The keys of ``tools`` that differ."""


class RunConfig(EngineSettings):
    """Everything that a run is."""

    tasks: dict[str, TaskShare] = {}
    """Several tasks: name -> plugin, weight, and the keys that differ."""
    out: Path | None = None
    """The run's folder; none: runs/<time>-<plugin>."""
    rewards: Rewards = None
    """The scorers and verifiers of the reward; none: the task's own."""
    env: str | None = None
    """The name of a registered environment; none: the one that the task makes."""
    task: dict[str, Any] = {}
    """The task's own keys, checked by its ``Config``."""
    data: DataConfig = DataConfig()
    agent: AgentConfig = AgentConfig()
    tools: ToolsConfig = ToolsConfig()

    @property
    def task_plugins(self) -> tuple[str, ...]:
        """The plugins of the run's tasks, in order."""
        return tuple(share.plugin or name for name, share in self.tasks.items()) or (self.plugin,)

    def with_plugin(self, plugin: str, moved: str) -> Self:
        """The configuration with another file in the place of a one-file plugin."""
        if not self.tasks:
            return self.model_copy(update={"plugin": moved})
        there = {name: share for name, share in self.tasks.items() if (share.plugin or name) == plugin}
        tasks = {name: share.model_copy(update={"plugin": moved}) for name, share in there.items()}
        return self.model_copy(update={"tasks": {**self.tasks, **tasks}})

    def by_task(self) -> dict[str, Self]:
        """The configuration of each task, as a run of that task alone would have it; the name of an only one is empty.

        The names are those of `Sample.task`.
        """
        return {name: self._of_task(name, share) for name, share in self.tasks.items()} or {"": self}

    def _of_task(self, name: str, share: TaskShare) -> Self:
        update: dict[str, Any] = {
            "plugin": share.plugin or name,
            "tasks": {},
            "task": share.task,
            "rewards": share.rewards or self.rewards,
            "env": share.env or self.env,
            "data": share.data,
            "rollout": RolloutConfig.model_validate({**self.rollout.model_dump(), **share.rollout}),
            "tools": ToolsConfig.model_validate({**self.tools.model_dump(), **share.tools}),
        }
        return self.model_copy(update=update)
