"""``rlfactory plugins list``: what is installed, told from metadata alone."""

from __future__ import annotations

from collections import Counter

import click

from rlfactory_core.cli.plugin_info import entry_record
from rlfactory_core.plugins.discovery import PluginEntry, discover, is_disabled


@click.command("list")
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


def _state(entry: PluginEntry, names: Counter[str]) -> str:
    if is_disabled(entry):
        return "disabled"
    return "conflict" if names[entry.name] > 1 else "ok"


def _as_json(states: dict[PluginEntry, str]) -> str:
    import json

    rows = [{**entry_record(entry), "state": state} for entry, state in states.items()]
    return json.dumps(rows, indent=2, ensure_ascii=False)
