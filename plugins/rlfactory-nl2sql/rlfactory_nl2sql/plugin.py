"""What rlfactory finds under the entry point ``nl2sql``; nothing heavy is imported here."""

from __future__ import annotations

from rlfactory_core import Lazy, LazyReward, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("nl2sql", Lazy("rlfactory_nl2sql.task:Nl2SqlTask"))


@hookimpl
def rlfactory_verifiers(register: Register) -> None:
    execution = "rlfactory_nl2sql.rewards.execution"
    options = f"{execution}:ExecutionOptions"
    register("execution", LazyReward(f"{execution}:ExecutionMatch", f"{execution}:saved_options", options))
    register("valid_sql", Lazy("rlfactory_nl2sql.rewards.valid_sql:ValidSql"))
    register("bird_execution", Lazy("rlfactory_nl2sql.rewards.bird:BirdExecution"))


@hookimpl
def rlfactory_report_sections(register: Register) -> None:
    register("answers", Lazy("rlfactory_nl2sql.report:answers"))


@hookimpl
def rlfactory_trajectory_sections(register: Register) -> None:
    register("verdict", Lazy("rlfactory_nl2sql.report:verdict"))


@hookimpl
def rlfactory_commands(register: Register) -> None:
    def make() -> object:
        from rlfactory_nl2sql.commands import nl2sql

        return nl2sql

    register("nl2sql", make)
