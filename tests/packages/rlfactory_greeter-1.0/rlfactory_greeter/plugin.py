"""A task, a scorer and a command."""

from __future__ import annotations

from typing import Any

import click

from rlfactory_core.hookspecs import hookimpl

RLFACTORY_API = ">=1,<2"


def greeter(config: Any, seed: int) -> Any:
    from rlfactory_core.task import Task

    return Task(config, seed)


def politeness(**options: Any) -> Any:
    return options


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    register("greeter", greeter)


@hookimpl
def rlfactory_reward_scorers(register: Any) -> None:
    register("politeness", politeness)


@hookimpl
def rlfactory_commands(register: Any) -> None:
    @click.group()
    def greet() -> None:
        """Greetings."""

    @greet.command()
    @click.argument("name")
    def say(name: str) -> None:
        """Greet NAME."""
        click.echo(f"Hello {name}")

    register("greeter", lambda: greet)
