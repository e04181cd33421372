"""An attempt by an agent, through a gateway of its own."""

from __future__ import annotations

import asyncio
from typing import Any

from conversations import CHAT, LIMITS, RecordingSampler, episode
from rlfactory_agents.play import play_agent
from rlfactory_agents.server import Gateway

from rlfactory_core.rollout import RolloutLimits, TokenModel
from rlfactory_core.types import Message, Sample, Trajectory

LONG_S = 60.0
SAMPLE = Sample("s", (Message("system", "Short."), Message("user", "Who?")), "him", {"town": "Ransta"})


def play(
    agent: Any, script: list[str] | None = None, limits: RolloutLimits = LIMITS, deadline_s: float = LONG_S
) -> Trajectory:
    async def run() -> Trajectory:
        gateway = Gateway()
        await gateway.open()
        model = TokenModel(CHAT, RecordingSampler(script or ["him"] * 10))
        try:
            return await play_agent(episode(limits, SAMPLE), agent, model, gateway, deadline_s)
        finally:
            await agent.close()
            await gateway.close()

    return asyncio.run(run())
