"""The agent of a task that has a loop of its own: a method of the task, or the configuration's program.

The plugin rlfactory-agents plays it.
"""

from __future__ import annotations

from typing import Protocol

from rlfactory_core.gateway.settings import AgentConfig
from rlfactory_core.plugins.discovery import separate_plugin
from rlfactory_core.plugins.lazy import Lazy
from rlfactory_core.protocols import Model
from rlfactory_core.rollout import Episode
from rlfactory_core.tasks.task import Task
from rlfactory_core.types import Trajectory

_PLAYER = Lazy("rlfactory_agents.player:Player")


def has_agent(task: Task, config: AgentConfig) -> bool:
    """Whether an agent of the user's own plays, and not an environment."""
    return bool(config.command) or type(task).agent is not Task.agent


def agents_plugin() -> str:
    """The plugin that plays agents; raises as `separate_plugin`."""
    return separate_plugin("agents", "The gateway for agents of your own")


class AgentPlayer(Protocol):
    """Plays attempts with one agent."""

    async def open(self) -> None:
        """Start the gateway."""

    async def close(self) -> None:
        """End what is left of the agents, and the gateway; it may be called before `open`, and repeatedly."""

    async def play(self, episode: Episode, model: Model) -> Trajectory:
        """One attempt, not scored."""


def make_agents(task: Task, config: AgentConfig) -> AgentPlayer | None:
    """The player of the agent; None: there is no agent.

    Raises:
        ConfigError: the agent's command cannot be used.
        MissingExtraError: the plugin that plays it is not installed.
    """
    if not has_agent(task, config):
        return None
    agents_plugin()
    player: AgentPlayer = _PLAYER(task.agent, config)
    return player
