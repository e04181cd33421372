"""``rlfactory new``: writes the first files of a new plugin."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from rlfactory_core.cli.output import echo
from rlfactory_core.errors import UsageError
from rlfactory_devkit.scaffold.names import names_of
from rlfactory_devkit.scaffold.template import DEFAULT, TEMPLATES, Template, render, render_file, template

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
    if place.suffix == ".py":
        _make_file(place, wanted)
    else:
        _make_project(place, wanted)


def _ask() -> str:
    echo(f"Templates:{LISTED}")
    return str(click.prompt("Template", default=DEFAULT, type=click.Choice(list(TEMPLATES)), show_choices=False))


def _make_project(place: Path, wanted: Template) -> None:
    names = names_of(place.name)
    files = render(wanted, names)
    write_project(place, files)
    echo(f"{place} has {len(files)} files: {wanted.summary}.\n\nNext:")
    echo(f"  python -m pip install -e '{place if place.is_absolute() else f'./{place}'}[test]'")
    echo(f"  python -m pytest {place}")
    echo(f"  rlfactory run --plugin {names.name} --steps 3")


def _make_file(place: Path, wanted: Template) -> None:
    names = names_of(place.stem.replace("_", "-"))
    write_file(place, render_file(wanted, names))
    spec = place if place.is_absolute() else f"./{place}"
    echo(f"{place} is {wanted.summary}.\n\nNext:")
    echo(f"  rlfactory plugins info {spec}")
    echo(f"  rlfactory plugins check {spec}")
    echo(f"  rlfactory run --plugin {spec} --steps 3")


def write_project(folder: Path, files: Mapping[str, str]) -> None:
    """Make the folder with all files, or nothing.

    Raises:
        UsageError: the folder exists, and is not changed, or it cannot be written.
    """
    _refuse_existing(folder)
    try:
        folder.mkdir()
        try:
            for path, text in files.items():
                place = folder / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    except OSError as error:
        raise _unwritable(folder, error) from error


def write_file(path: Path, text: str) -> None:
    """Make the one file; raises as `write_project`."""
    _refuse_existing(path)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise _unwritable(path, error) from error


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise UsageError(f"{path} is there already, and stays as it is. Choose another name, or move it away.")


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot make {path}: {error.strerror or error}. Choose a folder that can be written to.")
