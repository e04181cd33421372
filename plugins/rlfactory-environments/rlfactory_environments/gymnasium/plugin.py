"""What rlfactory finds under the entry point ``gymnasium``; nothing heavy is imported here."""

from __future__ import annotations

from rlfactory_core import Lazy, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("gymnasium", Lazy("rlfactory_environments.gymnasium.task:GymnasiumTask"))
