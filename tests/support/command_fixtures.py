"""Fixtures: the command line in a process of its own, and folders with installed test packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ROOT / "tests" / "packages"

Install = Callable[..., Path]
Rlfactory = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Install test packages, by their folder's name, into a site directory: what unpacking a wheel leaves there."""
    site = tmp_path / "site"
    site.mkdir()

    def install(*names: str) -> Path:
        for name in names:
            (folder,) = PACKAGES.glob(f"{name}-[0-9]*")
            shutil.copytree(folder, site, dirs_exist_ok=True)
        return site

    return install


@pytest.fixture
def rlfactory(tmp_path: Path) -> Rlfactory:
    """Run the command line in a process of its own, with only the given site directory's plugins to be found."""

    def run(*args: str, site: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        paths = [str(site)] if site else []
        return subprocess.run(
            [sys.executable, "-m", "rlfactory_core", *args],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)]), **env},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
