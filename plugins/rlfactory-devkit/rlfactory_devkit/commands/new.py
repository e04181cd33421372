"""``rlfactory new``: writes the first files of a new plugin."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from rlfactory_core.cli.output import echo
from rlfactory_core.errors import UsageError
from rlfactory_devkit.scaffold.names import names_of
from rlfactory_devkit.scaffold.template import DEFAULT, TEMPLATES, render, render_file, template

LISTED = "".join(f"\n  {item.name:<12}{item.summary}" for item in TEMPLATES.values())


@click.command(epilog=f"\b\nTemplates:{LISTED}")
@click.argument("path", metavar="[NAME|FILE.py]", required=False)
@click.option("--template", "chosen", metavar="TEMPLATE", help=f"See below. Default: {DEFAULT}.")
@click.pass_context
def new(ctx: click.Context, path: str | None, chosen: str | None) -> None:
    """Make the folder NAME with a plugin that runs as it is: code, tests, README, CI. Or only FILE.py.

    On a terminal it asks for a missing name or template.
    """
    asks = sys.stdin.isatty() and sys.stdout.isatty()
    if path is None:
        if not asks:
            raise click.UsageError("Missing a name, for example: rlfactory new my-task", ctx)
        path = str(click.prompt("Name, such as my-task"))
    place = Path(path).expanduser()
    if chosen is None:
        chosen = _ask() if asks and place.suffix != ".py" else DEFAULT
    wanted = template(chosen)
    if not place.parent.is_dir():
        raise UsageError(f"There is no folder {place.parent}. Make it first, or leave it out of the name.")
    one_file = place.suffix == ".py"
    names = names_of(place.stem.replace("_", "-") if one_file else place.name)
    files = {"": render_file(wanted, names)} if one_file else render(wanted, names)
    write_files(place, files)
    where = place if place.is_absolute() else f"./{place}"
    if one_file:
        echo(f"{place} is {wanted.summary}.\n\nNext:\n  rlfactory plugins info {where}")
        echo(f"  rlfactory plugins check {where}\n  rlfactory run --plugin {where} --steps 3")
    else:
        echo(f"{place} has {len(files)} files: {wanted.summary}.\n\nNext:\n  python -m pip install -e '{where}[test]'")
        echo(f"  python -m pytest {place}\n  rlfactory run --plugin {names.name} --steps 3")


def _ask() -> str:
    echo(f"Templates:{LISTED}")
    return str(click.prompt("Template", default=DEFAULT, type=click.Choice(list(TEMPLATES)), show_choices=False))


def write_files(place: Path, files: Mapping[str, str]) -> None:
    """Make all files, or none.

    Args:
        files: texts by path in the folder ``place``; an empty path is the file ``place`` itself."""
    if os.path.lexists(place):
        raise UsageError(f"{place} is there already, and stays as it is. Choose another name, or move it away.")
    try:
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".rlfactory-new-") as folder:
            made = Path(folder) / place.name
            for path, text in files.items():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_text(text, encoding="utf-8")
            made.rename(place)
    except OSError as error:
        raise UsageError(
            f"cannot make {place}: {error.strerror or error}. Choose a folder that can be written to."
        ) from error
