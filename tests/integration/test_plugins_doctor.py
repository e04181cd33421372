"""``rlfactory plugins doctor``: bad plugins beside good ones, what is not installed, and what a worker finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlfactory_core.hookspecs import API_VERSION
from rlfactory_core.plugins.diagnostics import requirement_checks

Run = Callable[..., Any]
Install = Callable[..., Path]

TASK = """
from rlfactory_core import Task, hookimpl
@hookimpl
def rlfactory_tasks(register):
    register("{name}", Task)
"""


def package(site: Path, name: str, code: str, *metadata: str) -> None:
    """What a wheel of one module with an entry point of its own name leaves in a site directory."""
    (site / f"{name}.py").write_text(code.format(name=name))
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *metadata, ""]))
    (info / "entry_points.txt").write_text(f"[rlfactory]\n{name} = {name}\n")


def examined(rlfactory: Run, site: Path | None, **env: str) -> tuple[int, dict[str, Any], dict[str, dict[str, Any]]]:
    """The exit code, the record, and its plugins by distribution."""
    done = rlfactory("plugins", "doctor", "--json", site=site, **env)
    record = json.loads(done.stdout)
    return done.returncode, record, {item["distribution"]: item for item in record["plugins"]}


@pytest.mark.slow
def test_bad_plugins_are_told_apart_from_good_ones(install: Install, rlfactory: Run) -> None:
    names = ("rlfactory_greeter", "rlfactory_greeter_twin", "rlfactory_manners", "rlfactory_broken", "rlfactory_future")
    code, record, found = examined(rlfactory, install(*names), RLFACTORY_DISABLE_PLUGINS="rlfactory-manners")
    assert code == 1
    states = {name: found[name.replace("_", "-")]["state"] for name in names}
    assert list(states.values()) == ["ok", "ok", "disabled", "broken", "broken"]
    assert record["api"] == API_VERSION
    assert found["rlfactory-future"]["api"] == ">=2,<3"
    assert f"this rlfactory-core {API_VERSION}" in found["rlfactory-future"]["error"]
    assert found["rlfactory-broken"]["api"] is None  # nobody could ask it
    assert 'rlfactory_broken.py", line 3' in found["rlfactory-broken"]["traceback"]
    (plugin, task) = record["conflicts"]
    assert "rlfactory-greeter 1.0 and rlfactory-greeter-twin 1.1 both give the plugin 'greeter'" in plugin
    assert "both give the task 'greeter'" in task
    assert record["problems"] == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        ("broken", "cannot be loaded: ModuleNotFoundError"),
        ("future", "speaks plugin API >=2,<3"),
        ("greeter", "Name the one you mean: 'rlfactory-greeter:greeter' or 'rlfactory-greeter-twin:greeter'"),
    ],
)
def test_a_bad_plugin_is_an_error_for_the_run_that_names_it(
    install: Install, rlfactory: Run, plugin: str, said: str
) -> None:
    site = install("rlfactory_greeter", "rlfactory_greeter_twin", "rlfactory_broken", "rlfactory_future")
    done = rlfactory("run", "--plugin", plugin, site=site)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_what_is_not_installed_is_an_error_for_the_base_and_a_note_for_an_extra(tmp_path: Path, rlfactory: Run) -> None:
    base = ("Requires-Dist: a-distribution-that-nobody-has",)
    extra = ("Provides-Extra: plots", "Requires-Dist: another-one>=2 ; extra == 'plots'")
    package(tmp_path, "without_base", TASK, *base)
    package(tmp_path, "without_extra", TASK, *extra)
    done = rlfactory("plugins", "doctor", site=tmp_path)
    assert done.returncode == 1
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "problem base: a-distribution-that-nobody-has: pip install 'without_base'" in lines
    assert "missing plots: another-one: pip install 'without_extra[plots]'" in lines
    assert rlfactory("plugins", "doctor", site=tmp_path, RLFACTORY_DISABLE_PLUGINS="without_base").returncode == 0


def test_an_extra_of_a_required_distribution_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "outer_part", TASK, "Requires-Dist: inner_part[fast]", "Requires-Dist: click<1")
    package(tmp_path, "inner_part", TASK, "Provides-Extra: fast", "Requires-Dist: a-fast-one ; extra == 'fast'")
    monkeypatch.syspath_prepend(tmp_path)
    (base,) = requirement_checks("outer_part")
    assert (base.state, base.what) == ("problem", "base")
    assert "(not <1), a-fast-one: pip install 'outer_part'" in base.detail


@pytest.mark.slow
def test_a_worker_that_would_refuse_is_found_before_the_run(tmp_path: Path, rlfactory: Run) -> None:
    (tmp_path / "restless").mkdir()
    package(tmp_path, "restless", "")
    (tmp_path / "restless.py").unlink()
    writes = "import os, pathlib\npathlib.Path(__file__).with_name('last.txt').write_text(str(os.getpid()))\n"
    (tmp_path / "restless" / "__init__.py").write_text(writes + TASK.format(name="restless"))
    package(tmp_path, "talkative", "print('hello')\n" + TASK)
    code, record, found = examined(rlfactory, tmp_path)
    assert code == 1
    assert "is not the driver's: the file restless/last.txt differs" in found["restless"]["worker"]
    assert (found["talkative"]["worker"], record["core_in_worker"]) == ("", "")
    assert json.loads(rlfactory("plugins", "info", "talkative", "--json", site=tmp_path).stdout)["name"] == "talkative"


@pytest.mark.slow
def test_a_plugin_that_only_the_current_folder_has_is_not_a_workers(tmp_path: Path, rlfactory: Run) -> None:
    package(tmp_path, "here_only", TASK)  # the command is started in this folder, which Python then searches
    _, _, found = examined(rlfactory, None)
    assert "No plugin 'here_only:here_only' is installed" in found["here_only"]["worker"]
