"""Another distribution with an entry point called ``greeter``."""

from __future__ import annotations

from typing import Any

from rlfactory_core.hookspecs import hookimpl


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    register("greeter", dict)
