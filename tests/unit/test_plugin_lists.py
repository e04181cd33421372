"""The plugins of this repository are listed by hand in three files, and each list names all of them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(f"plugins/{path.parent.name}" for path in ROOT.glob("plugins/*/pyproject.toml"))
PACKAGES = sorted(["rlfactory_core", *(Path(folder).name.replace("-", "_") for folder in FOLDERS)])
TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]


def test_types_are_checked_in_all() -> None:
    assert sorted(TOOLS["mypy"]["packages"]) == PACKAGES
    assert sorted(TOOLS["mypy"]["mypy_path"].split(":")) == FOLDERS


def test_imports_are_checked_in_all() -> None:
    linter = TOOLS["importlinter"]
    assert sorted(linter["root_packages"]) == PACKAGES
    kinds: dict[str, set[str]] = {}
    for contract in linter["contracts"]:
        kinds.setdefault(contract["type"], set()).update(contract.get("containers") or contract.get("ancestors") or ())
    assert set(PACKAGES) <= kinds["layers"]
    assert set(PACKAGES) == kinds["acyclic_siblings"]


def test_the_hook_before_a_commit_finds_all() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    entry = next(hook["entry"] for hook in hooks if hook["id"] == "import-linter")
    paths = entry.partition("PYTHONPATH=")[2].split()[0].split(":")
    assert sorted(paths) == [".", *FOLDERS]


def test_all_are_published_and_the_core_first() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    published = jobs["publish"]["strategy"]["matrix"]["distribution"]
    assert sorted(published) == PACKAGES
    assert published[0] == "rlfactory_core"
