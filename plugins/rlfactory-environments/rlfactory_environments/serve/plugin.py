"""The entry point ``serve``; it imports nothing heavy."""

from __future__ import annotations

from rlfactory_core import Lazy, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_commands(register: Register) -> None:
    register("serve", Lazy("rlfactory_environments.serve.command:serve").load)
