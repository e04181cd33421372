"""Folders of installed plugins that have metadata and no code, so that what only lists them can be measured."""

from __future__ import annotations

from pathlib import Path


def many_plugins(site: Path, count: int) -> Path:
    """Make a folder for ``PYTHONPATH`` with so many plugins, called many-0, many-1 and so on."""
    for number in range(count):
        info = site / f"rlfactory_many_{number}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rlfactory-many-{number}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[rlfactory]\nmany-{number} = rlfactory_many_{number}\n")
    return site
