"""``rlfactory plugins``: what is installed, what one plugin gives, and whether all of them load."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click

from rlfactory_core.plugins.discovery import PluginEntry, discover, is_disabled

if TYPE_CHECKING:
    from rlfactory_core.plugins.loading import Registration
    from rlfactory_core.plugins.registry import BrokenPlugin


@click.group()
def plugins() -> None:
    """List, describe and check the installed plugins."""


@plugins.command("list")
@click.option("--json", "as_json", is_flag=True, help="As a JSON list.")
def list_plugins(as_json: bool) -> None:
    """List the installed plugins, without importing them."""
    entries = discover()
    names = Counter(entry.name for entry in entries if not is_disabled(entry))
    states = {entry: _state(entry, names) for entry in entries}
    if as_json:
        click.echo(_as_json(states))
    elif not entries:
        click.echo("No plugins are installed. A task comes as a plugin, for example: pip install rlfactory-search")
    else:
        rows = [("NAME", "DISTRIBUTION", "VERSION", "STATE", "SUMMARY")]
        rows += [(e.name, e.distribution, e.version, state, e.summary) for e, state in states.items()]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            click.echo("  ".join([*cells, row[4]]).rstrip())


@plugins.command()
@click.argument("name")
@click.pass_context
def info(ctx: click.Context, name: str) -> None:
    """Load the plugin NAME (or DISTRIBUTION:NAME, or a file) and show what it gives."""
    from rlfactory_core.errors import PluginError
    from rlfactory_core.plugins.fingerprint import fingerprint
    from rlfactory_core.plugins.loading import words
    from rlfactory_core.plugins.registry import Registry

    registry = Registry()
    try:
        plugin = registry.load(name)
    except PluginError:
        if not registry.broken:
            raise
        _show_broken(registry.broken[0])
        ctx.exit(1)
    _show_entry(plugin.entry)
    click.echo(f"  plugin API    {plugin.api}")
    print_ = fingerprint(plugin.entry)
    click.echo(f"  files         {len(print_.files)}, fingerprint {print_.digest}")
    click.echo("  gives")
    for item in plugin.registrations:
        click.echo(f"    {words(item.kind):<14}{item.name}")
    for item in plugin.registrations:
        if item.kind == "task":
            _show_options(item)


@plugins.command()
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Load every plugin; exit with 1 where one is broken or two are in each other's way."""
    from rlfactory_core.plugins.registry import Registry

    registry = Registry()
    loaded = {plugin.entry for plugin in registry.load_all()}
    broken = {item.entry: item for item in registry.broken}
    for entry in registry.entries:
        if entry in loaded:
            click.echo(f"ok        {entry}")
        elif entry in broken:
            _show_broken(broken[entry])
        else:
            click.echo(f"disabled  {entry}")
    conflicts = registry.conflicts()
    for conflict in conflicts:
        click.echo(f"conflict  {conflict}")
    if not registry.entries:
        click.echo("No plugins are installed.")
    ctx.exit(1 if broken or conflicts else 0)


def _state(entry: PluginEntry, names: Counter[str]) -> str:
    if is_disabled(entry):
        return "disabled"
    return "conflict" if names[entry.name] > 1 else "ok"


def _as_json(states: dict[PluginEntry, str]) -> str:
    import json

    fields = ("name", "distribution", "version", "module", "summary")
    rows = [{**{field: getattr(entry, field) for field in fields}, "state": state} for entry, state in states.items()]
    return json.dumps(rows, indent=2, ensure_ascii=False)


def _show_entry(entry: PluginEntry) -> None:
    click.echo(entry.name)
    if entry.summary:
        click.echo(f"  {entry.summary}")
    click.echo(f"  distribution  {entry.distribution} {entry.version}".rstrip())
    click.echo(f"  module        {entry.file or entry.module}")


def _show_options(task: Registration) -> None:
    """The task's own options, as its ``Config`` declares them."""
    try:
        config = getattr(task.factory, "Config", None) or type(task.make({}, 0)).Config
    except Exception as error:  # noqa: BLE001 - the boundary to a plugin's code, which may want options to make a task
        click.echo(f"  options of task {task.name} cannot be told: {type(error).__name__}: {error}")
        return
    if config.model_fields:
        click.echo(f"  options of task {task.name}")
    for name, field in config.model_fields.items():
        default = (
            "has to be given" if field.is_required() else f"default {field.get_default(call_default_factory=True)!r}"
        )
        click.echo(f"    --{name.replace('_', '-'):<18} {_type_text(field.annotation)}; {default}")


def _type_text(annotation: Any) -> str:
    """``str | None``, ``'bm25' | 'dense'``."""
    if get_origin(annotation) is Literal:
        return " | ".join(map(repr, get_args(annotation)))
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return re.sub(r"\b[a-z_]\w*\.(?=\w)", "", str(annotation))  # without the modules


def _show_broken(plugin: BrokenPlugin) -> None:
    click.echo(f"broken    {plugin.error}")
    for line in plugin.traceback.rstrip().splitlines():
        click.echo(f"          {line}")
