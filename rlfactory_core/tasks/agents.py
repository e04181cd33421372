"""The agent of a task that has a loop of its own: a method of the task, or the configuration's program.

The plugin rlfactory-agents plays it.
"""

from __future__ import annotations

from typing import Protocol

from rlfactory_core.plugins.discovery import separate_plugin
from rlfactory_core.plugins.lazy import Lazy
from rlfactory_core.protocols import Model
from rlfactory_core.rollout import Episode
from rlfactory_core.tasks.setup import TaskSetup
from rlfactory_core.types import Trajectory

_PLAYER = Lazy("rlfactory_agents.player:Player")


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


def make_agents(setup: TaskSetup) -> AgentPlayer | None:
    """The player of the task's agent; None: there is no agent.

    Raises:
        ConfigError: the agent's command cannot be used.
        MissingExtraError: the plugin that plays it is not installed.
    """
    if not setup.has_agent:
        return None
    agents_plugin()
    player: AgentPlayer = _PLAYER(setup.task.agent, setup.agent)
    return player
