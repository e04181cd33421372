"""``rlfactory plugins doctor``: whether all plugins load, and get on with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rlfactory_core.plugins.registry import BrokenPlugin


@click.command()
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
            show_broken(broken[entry])
        else:
            click.echo(f"disabled  {entry}")
    conflicts = registry.conflicts()
    for conflict in conflicts:
        click.echo(f"conflict  {conflict}")
    if not registry.entries:
        click.echo("No plugins are installed.")
    ctx.exit(1 if broken or conflicts else 0)


def show_broken(plugin: BrokenPlugin) -> None:
    click.echo(f"broken    {plugin.error}")
    for line in plugin.traceback.rstrip().splitlines():
        click.echo(f"          {line}")
