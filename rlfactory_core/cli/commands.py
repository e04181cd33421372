"""Finds commands by name: those of the core, which are imported when they are called, and those of plugins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from rlfactory_core.errors import MissingExtraError, PluginError, UsageError
from rlfactory_core.plugins.discovery import discover, matching
from rlfactory_core.plugins.lazy import Lazy


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """The place of a command, and its line in the group's ``--help``, which does not import it."""

    target: str  # module:attribute
    help: str

    def load(self) -> click.Command:
        command: click.Command = Lazy(self.target).load()
        return command


@dataclass(frozen=True, slots=True)
class PluginCommand:
    """A command of rlfactory in a plugin of ours that is installed separately; ``--help`` shows it in any case."""

    plugin: str  # the entry point's name; the distribution is rlfactory-NAME
    name: str  # as the plugin registers it: the words after ``rlfactory``, such as "plugins check"
    help: str

    def load(self) -> click.Command:
        distribution = f"rlfactory-{self.plugin}"
        spec = f"{distribution}:{self.plugin}"
        if not matching(discover(), spec):
            raise MissingExtraError(
                f"`rlfactory {self.name}` is in the plugin {distribution}, which is not installed: "
                f"python -m pip install {distribution}"
            )
        return plugin_command(spec, self.name)


class LazyGroup(click.Group):
    """Imports its commands by name; ``lazy`` has them in the order of ``--help``."""

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand | PluginCommand], **options: Any) -> None:
        super().__init__(*args, **options)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.lazy[cmd_name].load() if cmd_name in self.lazy else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self.lazy.items()])


def plugin_command(spec: str, name: str) -> click.Command:
    """What an installed plugin, ``NAME`` or ``DISTRIBUTION:NAME``, registers as the command ``name``."""
    from rlfactory_core.plugins.registry import Registry

    plugin = Registry().load(spec)
    given = {item.name: item for item in plugin.registrations if item.kind == "command"}
    if name in given:
        command = given[name].make()
        if isinstance(command, click.Command):
            return command
        raise PluginError(f"The plugin {plugin.entry} gives {command!r} as its command; expected a click.Command.")
    if given:
        wrong = ", ".join(given)
        raise PluginError(
            f"The plugin {plugin.entry} registers the command {wrong}, which nobody can call: expected '{name}', with "
            "a click.Group for several commands."
        )
    raise UsageError(f"The plugin {plugin.entry} has no commands. To run its task: `rlfactory run --plugin {spec}`.")
