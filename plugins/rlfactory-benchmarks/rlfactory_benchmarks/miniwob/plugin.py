"""What rlfactory finds under the entry point ``miniwob``; nothing heavy is imported here."""

from __future__ import annotations

from rlfactory_core import Lazy, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("miniwob", Lazy("rlfactory_benchmarks.miniwob.task:Miniwob"))


@hookimpl
def rlfactory_reward_scorers(register: Register) -> None:
    register("miniwob", Lazy("rlfactory_benchmarks.miniwob.env:PageReward"))
    register("miniwob_success", Lazy("rlfactory_benchmarks.miniwob.env:PageSuccess"))
