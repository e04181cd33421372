"""What rlfactory finds under the entry point ``tau2``; nothing heavy is imported here."""

from __future__ import annotations

from rlfactory_core import Lazy, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("tau2", Lazy("rlfactory_benchmarks.tau2.task:Tau2"))


@hookimpl
def rlfactory_reward_scorers(register: Register) -> None:
    register("tau2", Lazy("rlfactory_benchmarks.tau2.rewards:Official"))
