"""What rlfactory finds under the entry point ``bfcl``; nothing heavy is imported here."""

from __future__ import annotations

from rlfactory_core import Lazy, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("bfcl", Lazy("rlfactory_benchmarks.bfcl.task:Bfcl"))


@hookimpl
def rlfactory_commands(register: Register) -> None:
    register("bfcl", Lazy("rlfactory_benchmarks.bfcl.command:bfcl").load)


@hookimpl
def rlfactory_reward_scorers(register: Register) -> None:
    register("bfcl", Lazy("rlfactory_benchmarks.bfcl.rewards:Official"))
    register("bfcl_known_functions", Lazy("rlfactory_benchmarks.bfcl.rewards:KnownFunctions"))
