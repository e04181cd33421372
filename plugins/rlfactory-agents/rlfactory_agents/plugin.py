"""What rlfactory finds under the entry point ``agents``; nothing heavy is imported here.

The core itself imports `player`, for a task with an agent.
"""

from __future__ import annotations

from rlfactory_core import Lazy, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_commands(register: Register) -> None:
    register("agents", Lazy("rlfactory_agents.command:agents").load)
