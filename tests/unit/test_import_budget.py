"""What ``import rlfactory_core`` and ``rlfactory plugins list`` load; `benchmarks/startup.py` says what they cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_sites import many_plugins

ROOT = Path(__file__).parent.parent.parent
HEAVY = {"torch", "transformers", "tokenizers", "numpy", "ray", "verl", "vllm", "mcp", "qwen_agent"}
OURS_ONLY_LATER = {"pydantic", "yaml", "rich", "jinja2", "jsonschema", "httpx", "pluggy"}
MODULES = 230  # of which 180 are in use, most of them Python's own


def loaded_by(code: str, site: Path | None = None) -> set[str]:
    """The modules in a fresh interpreter after some code."""
    path = os.pathsep.join([*([str(site)] if site else []), str(ROOT)])
    script = f"{code}\nimport sys; sys.stderr.write(' '.join(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def packages(modules: set[str]) -> set[str]:
    return {name.split(".")[0] for name in modules}


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = packages(loaded_by("import rlfactory_core"))
    assert not loaded & (HEAVY | OURS_ONLY_LATER | {"click"})


@pytest.mark.parametrize("arguments", [["plugins", "list"], ["--help"]])
def test_listing_plugins_loads_nothing_of_them_and_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    code = f"from rlfactory_core.cli.main import invoke; assert invoke({arguments}) == 0"
    loaded = loaded_by(code, many_plugins(tmp_path, 30))
    assert not packages(loaded) & (HEAVY | OURS_ONLY_LATER)
    assert not any(name.startswith("rlfactory_many") for name in loaded)
    assert len(loaded) <= MODULES


def test_listing_shows_every_installed_plugin(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    site = many_plugins(tmp_path, 30)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(ROOT)))}
    subprocess.run([sys.executable, "-m", "rlfactory_core", "plugins", "list"], env=environment, check=True)
    assert capfd.readouterr().out.count("rlfactory-many-") == 30
