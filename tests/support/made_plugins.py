"""Plugins made by ``rlfactory new``, installed as far as a search path can do it."""

from __future__ import annotations

from pathlib import Path

from rlfactory_devkit.commands.new import write_files
from rlfactory_devkit.scaffold.names import names_of
from rlfactory_devkit.scaffold.template import render, template


def make_plugin(parent: Path, name: str, kind: str) -> Path:
    """The project's folder; on Python's path, it is an installed distribution."""
    parent.mkdir(parents=True, exist_ok=True)
    names, wanted = names_of(name), template(kind)
    folder = parent / name
    write_files(folder, render(wanted, names))
    facts = folder / f"{names.package}-0.1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    (facts / "entry_points.txt").write_text(f"[rlfactory]\n{name} = {names.package}.{wanted.module}\n")
    return folder
