"""The entry point ``openenv``; it imports nothing heavy."""

from __future__ import annotations

from typing import Any

from rlfactory_core import hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    def make(config: dict[str, Any], seed: int) -> Any:
        from rlfactory_environments.openenv.task import OpenEnvTask

        return OpenEnvTask(config, seed)

    register("openenv", make)
