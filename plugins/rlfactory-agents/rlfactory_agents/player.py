"""Plays attempts with one agent: a function, or the configuration's program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from rlfactory_agents.function import FunctionAgents
from rlfactory_agents.play import play_agent
from rlfactory_agents.program import ProgramAgents
from rlfactory_agents.server import Gateway
from rlfactory_core.gateway import AgentConfig, Endpoint
from rlfactory_core.protocols import Model
from rlfactory_core.rollout import Episode
from rlfactory_core.types import Sample, Trajectory


class Player:
    """A `gateway.AgentPlayer`, with a gateway of its own.

    Args:
        function: the agent, unless the configuration has a program.

    Raises:
        ConfigError: the agent's command cannot be used.
    """

    def __init__(self, function: Callable[[Sample, Endpoint], Any], config: AgentConfig) -> None:
        self._deadline_s = config.deadline_s
        # The deadline of an attempt begins when its program can start.
        self._room = asyncio.Semaphore(config.workers or config.concurrency) if config.command else nullcontext()
        self._gateway = Gateway()
        self._agent: FunctionAgents | ProgramAgents = (
            ProgramAgents(config.command, config.environment, config.workers)
            if config.command
            else FunctionAgents(function)
        )

    async def open(self) -> None:
        """Start the gateway."""
        await self._gateway.open()

    async def close(self) -> None:
        """End what is left of the agents, and the gateway; it may be called before `open`, and repeatedly."""
        await self._agent.close()
        await self._gateway.close()

    async def play(self, episode: Episode, model: Model) -> Trajectory:
        """One attempt, not scored; see `play_agent`."""
        async with self._room:
            return await play_agent(episode, self._agent, model, self._gateway, self._deadline_s)
