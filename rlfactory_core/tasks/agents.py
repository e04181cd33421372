"""The agent of a task that has a loop of its own: a method of the task, or the configuration's program."""

from __future__ import annotations

from rlfactory_core.config.sections import AgentConfig
from rlfactory_core.gateway.function import FunctionAgents
from rlfactory_core.gateway.models import GatewayModel
from rlfactory_core.gateway.play import play_agent
from rlfactory_core.gateway.program import ProgramAgents
from rlfactory_core.gateway.server import Gateway
from rlfactory_core.rollout import Episode
from rlfactory_core.tasks.task import Task
from rlfactory_core.types import Trajectory


def has_agent(task: Task, config: AgentConfig) -> bool:
    """Whether an agent of the user's own plays, and not an environment."""
    return bool(config.command) or type(task).agent is not Task.agent


class Agents:
    """Plays attempts with the agent; `open` and `close` do nothing if there is none.

    Raises:
        ConfigError: the agent's command cannot be used.
    """

    def __init__(self, task: Task, config: AgentConfig) -> None:
        self._deadline_s = config.deadline_s
        self._gateway = Gateway()
        self._agent: FunctionAgents | ProgramAgents | None = None
        if config.command:
            self._agent = ProgramAgents(config.command, config.environment, config.workers)
        elif has_agent(task, config):
            self._agent = FunctionAgents(task.agent)

    @property
    def exist(self) -> bool:
        """Whether there is an agent."""
        return self._agent is not None

    async def open(self) -> None:
        """Start the gateway.

        Raises:
            MissingExtraError: its packages are not installed.
        """
        if self._agent is not None:
            await self._gateway.open()

    async def close(self) -> None:
        """End what is left of the agents, and the gateway; it may be called before `open`, and repeatedly."""
        if self._agent is not None:
            await self._agent.close()
        await self._gateway.close()

    async def play(self, episode: Episode, model: GatewayModel) -> Trajectory:
        """One attempt, not scored; see `gateway.play_agent`."""
        assert self._agent is not None
        return await play_agent(episode, self._agent, model, self._gateway, self._deadline_s)
