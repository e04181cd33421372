"""``rlfactory plugins info``: what one plugin gives, and how it is set up."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from textwrap import shorten
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rlfactory_core.plugins.described import Description, Part
    from rlfactory_core.plugins.discovery import PluginEntry
    from rlfactory_core.plugins.options import Option

WIDEST = 40  # a column that is wider does not push the others away


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="As a JSON object.")
@click.pass_context
def info(ctx: click.Context, name: str, as_json: bool) -> None:
    """Load the plugin NAME (or DISTRIBUTION:NAME, or a file) and show what it gives."""
    from rlfactory_core.errors import PluginError
    from rlfactory_core.plugins.described import describe
    from rlfactory_core.plugins.registry import Registry

    registry = Registry()
    try:
        with redirect_stdout(sys.stderr):  # a plugin may say something as it is imported
            description = describe(registry.load(name))
    except PluginError as error:
        if not registry.broken:
            raise
        trace = registry.broken[0].traceback
        click.echo(_as_json({"error": str(error), "traceback": trace}) if as_json else f"broken    {error}\n{trace}")
        ctx.exit(1)
    click.echo(_as_json(_record(description)) if as_json else "\n".join(_lines(description)))


def entry_record(entry: PluginEntry) -> dict[str, object]:
    """What every JSON of ours says of a plugin, by the same keys."""
    fields = ("name", "distribution", "version", "module", "summary")
    return {field: getattr(entry, field) for field in fields} | ({"file": entry.file} if entry.file else {})


def _as_json(record: dict[str, object]) -> str:
    import json

    return json.dumps(record, indent=2, ensure_ascii=False)


def _record(description: Description) -> dict[str, object]:
    from dataclasses import asdict

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
    rows = [(words(part.kind), part.name, part.problem or part.doc) for part in description.parts]
    yield from table(rows, "    ")
    for part in description.parts:
        yield from _options(part, words(part.kind))


def _options(part: Part, kind: str) -> Iterator[str]:
    if part.options:
        yield ""
        yield f"  options of the {kind} '{part.name}', given as {part.given_as}"
        yield from table([(item.key, item.type, _default(item), item.doc) for item in part.options], "    ")


def _default(option: Option) -> str:
    if option.default is None:
        return "has to be given"
    return f"default {shorten(option.default, WIDEST - 8, placeholder=' …')}"


def table(rows: Sequence[tuple[str, ...]], indent: str) -> Iterator[str]:
    """Columns that line up; the last one is as long as it likes."""
    widths = [min(WIDEST, max(map(len, column))) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        yield (indent + "  ".join([*cells, row[-1]])).rstrip()
