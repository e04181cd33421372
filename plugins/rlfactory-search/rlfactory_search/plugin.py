"""The entry point ``search``. It imports nothing heavy."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from rlfactory_core import hookimpl

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    def make(config: dict[str, Any], seed: int) -> Any:
        from rlfactory_search.task import SearchTask

        return SearchTask(config, seed)

    register("search", make)


@hookimpl
def rlfactory_recipes(register: Any) -> None:
    for path in sorted(Path(__file__).with_name("recipes").glob("*.yaml")):
        register(path.stem, partial(Path, path))


@hookimpl
def rlfactory_commands(register: Any) -> None:
    def make() -> Any:
        from rlfactory_search.commands import search

        return search

    register("search", make)
