"""Speaks an API that this core does not."""

from __future__ import annotations

from typing import Any

from rlfactory_core.hookspecs import hookimpl

RLFACTORY_API = ">=2,<3"


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    register("future", dict)
