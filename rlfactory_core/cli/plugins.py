"""``rlfactory plugins``: its commands, each in a file of its own."""

from __future__ import annotations

import click

from rlfactory_core.cli.lazy_group import LazyCommand, LazyGroup

HERE = "rlfactory_core.cli"
COMMANDS = {
    "list": LazyCommand(f"{HERE}.plugin_list:list_plugins", "List the installed plugins, without importing them."),
    "info": LazyCommand(f"{HERE}.plugin_info:info", "Show what a plugin gives, and the options that it takes."),
    "check": LazyCommand(f"{HERE}.check:check", "Play a plugin's task without a model, and say what is wrong with it."),
    "redteam": LazyCommand(f"{HERE}.redteam:redteam", "Attack a task's reward with wrong and right answers."),
    "doctor": LazyCommand(f"{HERE}.plugin_doctor:doctor", "Load every plugin, and say what is wrong with any."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def plugins() -> None:
    """List, describe and check the installed plugins."""
