"""What rlfactory finds under the entry point ``pioneer``."""

from __future__ import annotations

from rlfactory_core import Lazy, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("pioneer", Lazy("rlfactory_pioneer.task:Coins"))


@hookimpl
def rlfactory_verifiers(register: Register) -> None:
    register("looked", Lazy("rlfactory_pioneer.rewards:Looked"))


@hookimpl
def rlfactory_reward_scorers(register: Register) -> None:
    register("patience", Lazy("rlfactory_pioneer.rewards:Patience"))


@hookimpl
def rlfactory_commands(register: Register) -> None:
    def make() -> object:
        from rlfactory_pioneer.commands import pioneer

        return pioneer

    register("pioneer", make)
