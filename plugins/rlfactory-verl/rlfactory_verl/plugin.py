"""What rlfactory finds under the entry point ``verl``; nothing heavy is imported here."""

from __future__ import annotations

from rlfactory_core import Lazy, LazyEngine, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_engines(register: Register) -> None:
    register("verl", LazyEngine("rlfactory_verl.engine:VerlEngine", "rlfactory_verl.constraints:adapt_defaults"))


@hookimpl
def rlfactory_config_sections(register: Register) -> None:
    register("verl", Lazy("rlfactory_verl.config:VerlConfig"))


@hookimpl
def rlfactory_diagnostics(register: Register) -> None:
    register("verl", Lazy("rlfactory_verl.doctor.checks:diagnose"))
