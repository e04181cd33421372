"""The table "To add a part" in CONTRIBUTING.md, performed in a copy of the repository: copy, register, test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from documents import ROOT, blocks

pytestmark = pytest.mark.slow

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "dist", "site", "runs", "benchmarks", "results", "browser")
CORE, OTHERS = "rlfactory_core", "plugins/rlfactory-environments"
REGISTERED = "tests/unit/test_registered.py"


def rows() -> dict[str, list[str]]:
    """What is added -> the paths that its row names."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## To add a part")[2].partition("\n## ")[0]
    cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| a")]
    return {
        re.split(r"[:]", first)[0].strip(): re.findall(
            r"`((?:rlfactory_core|plugins|docs|tests)/[^`]+)`", " ".join(rest)
        )
        for first, *rest in cells
    }


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the core, the plugins, the tests and the documents, in which all rows are performed."""
    copy = tmp_path_factory.mktemp("house")
    for name in (CORE, "plugins", "tests", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=LEFT_OUT)
    for name in ("conftest.py", "pyproject.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, copy / name)
    builtin = copy / CORE / "builtin.py"
    copied(copy / CORE / "algo" / "losses", "sapo", "mine_loss")
    registered(builtin, '"sapo"', sapo="mine_loss")
    shutil.copy(copy / CORE / "algo" / "turn_advantages.py", copy / CORE / "algo" / "mine_advantages.py")
    registered(builtin, '"turn_grpo"', turn_advantages="mine_advantages", **{'"turn_grpo"': '"mine_advantage"'})
    copied(copy / CORE / "algo" / "methods", "dr_grpo", "mine_method", DR_GRPO="MINE")
    methods = copy / CORE / "algo" / "methods" / "__init__.py"
    registered(methods, "import DR_GRPO", dr_grpo="mine_method", DR_GRPO="MINE")
    registered(methods, '"dr_grpo":', dr_grpo="mine_method", DR_GRPO="MINE")
    registered(builtin, 'register("dr_grpo", lazy.Lazy(f"{losses}', dr_grpo="mine_method")
    shutil.copy(copy / CORE / "chat" / "families" / "kimi.py", copy / CORE / "chat" / "families" / "mine.py")
    registered(builtin, '"kimi-k2"', **{"kimi-k2": "mine-1", ".kimi:": ".mine:"})
    registered(copy / CORE / "reporting" / "metrics.py", 'metrics["turns"] =', **{'"turns"': '"mine_metric"'})
    registered(copy / CORE / "reporting" / "metric_table.py", 'Metric("turns"', **{'"turns"': '"mine_metric"'})
    package = copy / OTHERS / "rlfactory_environments"
    shutil.copytree(package / "gymnasium", package / "mine")
    for path in (package / "mine").glob("*.py"):
        text = path.read_text(encoding="utf-8").replace(
            "rlfactory_environments.gymnasium", "rlfactory_environments.mine"
        )
        path.write_text(text.replace('register("gymnasium"', 'register("mine"'), encoding="utf-8")
    registered(copy / OTHERS / "pyproject.toml", ".gymnasium.plugin", gymnasium="mine")
    installed(copy / OTHERS)
    return copy


def copied(folder: Path, name: str, new: str, **others: str) -> None:
    """Copy a module, in which its name is another one then."""
    text = (folder / f"{name}.py").read_text(encoding="utf-8")
    for old, now in {name: new, **others}.items():
        text = re.sub(rf"\b{old}\b", now, text)
    (folder / f"{new}.py").write_text(text, encoding="utf-8")


def registered(file: Path, line: str, **changes: str) -> None:
    """Put a changed copy of a line below it."""
    text = file.read_text(encoding="utf-8")
    (found,) = (each for each in text.splitlines(keepends=True) if line in each)
    new = found
    for old, now in changes.items():
        new = new.replace(old, now)
    assert new != found
    file.write_text(text.replace(found, found + new), encoding="utf-8")


def installed(plugin: Path) -> None:
    """What ``pip install -e`` writes of a plugin's entry points, in its folder, which is on the path."""
    project = tomllib.loads((plugin / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = plugin / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = [f"{name} = {module}" for name, module in project["entry-points"]["rlfactory"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[rlfactory]", *points]) + "\n")


def run(house: Path, *arguments: object) -> str:
    """Python in the copy; its output."""
    path = [house, *sorted((house / "plugins").iterdir())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def example(house: Path, document: str) -> Path:
    """The file of a page's example."""
    block = next(each for each in blocks(house / document) if each.mark.startswith("file: "))
    path = house / block.mark.removeprefix("file: ")
    path.write_text(block.body, encoding="utf-8")
    return path


def test_each_row_names_files_that_are_there() -> None:
    found = rows()
    assert list(found) == [
        *("a loss", "an advantage", "a method", "a chat family", "a metric", "a source of tools"),
        *("an adapter of environments", "an engine"),
    ]
    assert [path for paths in found.values() for path in paths if not (ROOT / path).exists()] == []


def test_what_is_registered_in_the_core_passes_its_test(house: Path) -> None:
    out = run(house, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", REGISTERED, "-k", "mine")
    passed = set(re.findall(r"^PASSED \S+\[([\w-]+)\]", out, re.MULTILINE))
    assert {"mine_loss", "mine_advantage", "mine_method", "mine-1", "mine_metric"} <= passed, out


def test_a_metric_is_measured(house: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests/support'); from reporting_examples import make_group; "
        "from rlfactory_core.reporting.metrics import group_metrics; print(group_metrics([make_group([1.0, 0.0])]))"
    )
    assert "'mine_metric': 2.0" in run(house, "-c", code)


def test_an_adapter_of_environments_is_a_plugin(house: Path) -> None:
    assert '"mine"' in run(house, "-m", CORE, "plugins", "info", "mine", "--json")


def test_a_source_of_tools_is_called(house: Path) -> None:
    path = example(house, "docs/hooks/tool_sources.md")
    assert "Rome" in run(house, "-m", CORE, "tools", "call", "hour", "--plugin", path, "tools.clock=Rome")


def test_an_engine_trains(house: Path) -> None:
    path = example(house, "docs/hooks/engines.md")
    run(house, "-m", CORE, "run", "--plugin", path, "--engine", "unigram", "--steps", "2", "--out", house / "first")
    assert (house / "first" / "summary.json").exists()
