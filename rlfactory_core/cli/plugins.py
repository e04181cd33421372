"""``rlfactory plugins``: the group of commands, with ``list``, which reads metadata only, and ``info``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from textwrap import shorten
from typing import TYPE_CHECKING

import click

from rlfactory_core.cli.commands import LazyCommand, LazyGroup, PluginCommand
from rlfactory_core.cli.output import echo, echo_json
from rlfactory_core.plugins.discovery import PluginEntry, discover, is_disabled

if TYPE_CHECKING:
    from rlfactory_core.plugins.description import Description
    from rlfactory_core.plugins.options import Option

HERE = "rlfactory_core.cli"
COMMANDS = {
    "list": LazyCommand(f"{HERE}.plugins:list_plugins", "List the installed plugins, without importing them."),
    "info": LazyCommand(f"{HERE}.plugins:info", "Show what a plugin gives, and the options that it takes."),
    "check": PluginCommand("devkit", "plugins check", "Play a task without a model, and say what is wrong with it."),
    "redteam": PluginCommand("devkit", "plugins redteam", "Attack a task's reward with wrong and right answers."),
    "doctor": LazyCommand(f"{HERE}.plugins_doctor:doctor", "Load every plugin, and say what is wrong with any."),
}
WIDEST = 40  # most characters of a column that are aligned


@click.group(cls=LazyGroup, lazy=COMMANDS)
def plugins() -> None:
    """List, describe and check the installed plugins."""


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="As a JSON list.")
@click.option("--tasks", "only_tasks", is_flag=True, help="Only those that give a task; this imports them.")
def list_plugins(as_json: bool, only_tasks: bool) -> None:
    """List the installed plugins, without importing them."""
    entries = _with_tasks() if only_tasks else discover()
    names = Counter(entry.name for entry in entries if not is_disabled(entry))
    states = {  # nothing was imported, so nobody can know more
        entry: "disabled" if is_disabled(entry) else "conflict" if names[entry.name] > 1 else "installed"
        for entry in entries
    }
    if as_json:
        echo_json([{**entry_record(entry), "state": state} for entry, state in states.items()])
    elif not entries:
        echo("No plugins are installed. A task comes as a plugin, for example: pip install rlfactory-search")
    else:
        rows = [(e.name, e.distribution, e.version, state, e.summary) for e, state in states.items()]
        echo("\n".join(table([("NAME", "DISTRIBUTION", "VERSION", "STATE", "SUMMARY"), *rows], "")))


def _with_tasks() -> Sequence[PluginEntry]:
    from rlfactory_core.plugins.registry import Registry

    with redirect_stdout(sys.stderr):  # a plugin may print when it is imported
        return [plugin.entry for plugin in Registry().load_all() if "task" in {x.kind for x in plugin.registrations}]


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="As a JSON object.")
@click.pass_context
def info(ctx: click.Context, name: str, as_json: bool) -> None:
    """Load the plugin NAME (or DISTRIBUTION:NAME, or a file) and show what it gives."""
    from rlfactory_core.errors import PluginError
    from rlfactory_core.plugins.description import describe
    from rlfactory_core.plugins.registry import Registry

    registry = Registry()
    try:
        with redirect_stdout(sys.stderr):  # a plugin may print when it is imported
            description = describe(registry.load(name))
    except PluginError as error:
        if not registry.broken:
            raise
        trace = registry.broken[0].traceback
        if as_json:
            echo_json({"error": str(error), "traceback": trace})
        else:
            echo(f"broken    {error}\n{trace}")
        ctx.exit(1)
    if as_json:
        echo_json(_record(description))
    else:
        echo("\n".join(_lines(description)))


def entry_record(entry: PluginEntry) -> dict[str, object]:
    """A plugin's fields in the JSON of all commands."""
    fields = ("name", "distribution", "version", "module", "summary")
    return {field: getattr(entry, field) for field in fields} | ({"file": entry.file} if entry.file else {})


def _record(description: Description) -> dict[str, object]:
    return {
        **entry_record(description.entry),
        "api": description.api,
        "fingerprint": description.fingerprint.digest,
        "files": dict(description.fingerprint.files),
        "gives": [asdict(part) for part in description.parts],
    }


def _lines(description: Description) -> Iterator[str]:
    from rlfactory_core.hookspecs import API_VERSION
    from rlfactory_core.plugins.loading import words

    entry, print_ = description.entry, description.fingerprint
    yield entry.name
    if entry.summary:
        yield f"  {entry.summary}"
    yield f"  distribution  {entry.distribution} {entry.version}".rstrip()
    yield f"  module        {entry.file or entry.module}"
    yield f"  plugin API    {description.api} (this rlfactory-core speaks {API_VERSION})"
    yield f"  files         {len(print_.files)}, fingerprint {print_.digest}"
    yield "  gives"
    yield from table([(words(part.kind), part.name, part.problem or part.doc) for part in description.parts], "    ")
    for part in description.parts:
        if part.options:
            yield f"\n  options of the {words(part.kind)} '{part.name}', given as {part.given_as}"
            yield from table([(item.key, item.type, _default(item), item.doc) for item in part.options], "    ")


def _default(option: Option) -> str:
    if option.default is None:
        return "has to be given"
    return f"default {shorten(option.default, WIDEST - 8, placeholder=' …')}"


def table(rows: Sequence[tuple[str, ...]], indent: str) -> Iterator[str]:
    """Rows with aligned columns; the last column has any width."""
    widths = [min(WIDEST, max(map(len, column))) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        yield (indent + "  ".join([*cells, row[-1]])).rstrip()
