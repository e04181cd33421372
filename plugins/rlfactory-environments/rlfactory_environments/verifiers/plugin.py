"""What rlfactory finds under the entry point ``verifiers``; nothing heavy is imported here."""

from __future__ import annotations

from rlfactory_core import Lazy, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("verifiers", Lazy("rlfactory_environments.verifiers.task:VerifiersTask"))


@hookimpl
def rlfactory_reward_scorers(register: Register) -> None:
    register("verifiers_rubric", Lazy("rlfactory_environments.verifiers.rubric:Rubric"))
