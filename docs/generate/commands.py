"""A page for each command, with the help that the command itself prints."""

from __future__ import annotations

from collections.abc import Iterator

import click

from rlfactory_core.cli.main import COMMANDS, cli
from rlfactory_core.plugins.registry import Registry

WIDTH = 110


def command_pages() -> dict[str, str]:
    """Path -> text, for the core's commands and those of the plugins that are installed."""
    root = click.Context(cli, info_name="rlfactory")
    plugins = Registry().load_all()
    names = {item.name for plugin in plugins for item in plugin.registrations if item.kind == "command"}
    brought = sorted(names & {plugin.entry.name for plugin in plugins} - COMMANDS.keys())
    head = "# Commands\n\nLook up here what each command does, and its options."
    pages = {"commands/index.md": f"{head}\n\n{_help(cli, root)}\n\n{_contents([*COMMANDS, *brought])}"}
    for name in (*COMMANDS, *brought):
        command = cli.get_command(root, name)
        assert command is not None
        title, *sections = _sections(command, click.Context(command, root, name))
        pages[f"commands/{name}.md"] = "\n\n".join([title, "Look up here the options of this command.", *sections])
    return pages


def _contents(names: list[str]) -> str:
    return "\n".join(f"- [`rlfactory {name}`]({name}.md)" for name in names) + "\n"


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    """The command, then each of its own commands."""
    level = "#" * context.command_path.count(" ")
    yield f"{level} `{context.command_path}`"
    yield _help(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (sub := command.get_command(context, name)) is not None and not sub.hidden:
                yield from _sections(sub, click.Context(sub, context, name))


def _help(command: click.Command, context: click.Context) -> str:
    context.max_content_width = context.terminal_width = WIDTH
    return f"```text\n{command.get_help(context)}\n```"
