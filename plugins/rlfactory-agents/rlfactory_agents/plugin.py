"""What rlfactory finds under the entry point ``agents``; nothing heavy is imported here."""

from __future__ import annotations

from rlfactory_core import Lazy, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_agent_players(register: Register) -> None:
    register("agents", Lazy("rlfactory_agents.play:Player"))


@hookimpl
def rlfactory_commands(register: Register) -> None:
    register("agents", Lazy("rlfactory_agents.command:agents").load)
