"""``rlfactory plugins info``: what one plugin gives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click

from rlfactory_core.cli.plugin_doctor import show_broken

if TYPE_CHECKING:
    from rlfactory_core.plugins.discovery import PluginEntry
    from rlfactory_core.plugins.loading import Registration


@click.command()
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
        show_broken(registry.broken[0])
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
