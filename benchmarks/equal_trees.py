"""The code of two commits in one environment; a part of `equal_results` and `shared_prompts`.

Entry points come from installed metadata, so each tree has a folder with the metadata of its own distributions, which
comes first on the path and hides what is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
OURS = re.compile(r"rlfactory[-_]")


@dataclass(frozen=True)
class Tree:
    """The files of a commit, or the working tree."""

    name: str  # for people
    code: Path
    runs: Path  # the folder for what its code makes
    environment: Mapping[str, str]  # of a process that runs its code

    @classmethod
    def make(cls, commit: str, folder: Path) -> Tree:
        """Write the files of a commit below ``folder``; without one, the working tree is used where it is."""
        code, name = ROOT, "the working tree"
        if commit:
            code, name = folder / "code", f"commit {_git('rev-parse', '--short=8', commit).decode().strip()}"
            if not code.exists():
                with tarfile.open(fileobj=BytesIO(_git("archive", "--format=tar", commit))) as archive:
                    archive.extractall(code, filter="data")
        runs, metadata = folder / "runs", folder / "metadata"
        runs.mkdir(parents=True, exist_ok=True)
        _write_metadata(code, metadata)
        path = [metadata, code, *sorted(code.glob("plugins/*")), code / "tests" / "support"]
        return cls(name, code, runs, {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": ""})

    def plugin(self, spec: str) -> str:
        """The plugin's name, or the tree's file."""
        return str(self.code / spec) if spec.endswith(".py") else spec


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout


def _projects(code: Path) -> Iterator[dict[str, Any]]:
    for path in (code / "pyproject.toml", *sorted(code.glob("plugins/*/pyproject.toml"))):
        yield tomllib.loads(path.read_text(encoding="utf-8"))["project"]


def _write_metadata(code: Path, folder: Path) -> None:
    for path in folder.glob("*.dist-info/*"):
        path.unlink()
    core = re.search(r'"([^"]+)"', (code / "rlfactory_core" / "version.py").read_text(encoding="utf-8"))
    assert core, "rlfactory_core/version.py names no version"
    projects = {project["name"]: project for project in _projects(code)}
    installed = {name for found in distributions() if OURS.match(name := found.metadata["Name"] or "")}
    for name in sorted(installed | projects.keys()):
        project = projects.get(name, {})  # an installed one that the tree does not have gets no entry points
        version = project.get("version", core[1])
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Summary: {project['description']}"] if "description" in project else []
        (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
        points = []
        for group, found in project.get("entry-points", {}).items():
            points += [f"[{group}]", *(f"{key} = {value}" for key, value in found.items())]
        (info / "entry_points.txt").write_text("\n".join(points) + "\n", encoding="utf-8")
