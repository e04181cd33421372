"""``rlfactory plugins``, plugins' own commands, and how errors look, each in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
Install = Callable[..., Path]


def test_list_shows_names_distributions_and_states(install: Install, rlfactory: Run) -> None:
    site = install("rlfactory_greeter", "rlfactory_greeter_twin", "rlfactory_broken", "rlfactory_manners")
    done = rlfactory("plugins", "list", site=site, RLFACTORY_DISABLE_PLUGINS="manners")
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["NAME", "DISTRIBUTION", "VERSION", "STATE", "SUMMARY"]
    states = {row[1]: (row[0], row[2], row[3]) for row in rows[1:]}
    assert states["rlfactory-greeter"] == ("greeter", "1.0", "conflict")
    assert states["rlfactory-greeter-twin"] == ("greeter", "1.1", "conflict")
    assert states["rlfactory-broken"] == ("broken", "0.3", "installed")  # nothing was imported, so nobody can know more
    assert states["rlfactory-manners"] == ("manners", "0.9", "disabled")


def test_list_as_json(install: Install, rlfactory: Run) -> None:
    rows = json.loads(rlfactory("plugins", "list", "--json", site=install("rlfactory_greeter")).stdout)
    assert {
        "name": "greeter",
        "distribution": "rlfactory-greeter",
        "version": "1.0",
        "module": "rlfactory_greeter.plugin",
        "summary": "Learn to greet",
        "state": "installed",
    } in rows


@pytest.mark.slow
def test_info_shows_what_a_plugin_gives(install: Install, rlfactory: Run) -> None:
    done = rlfactory("plugins", "info", "greeter", site=install("rlfactory_greeter"))
    assert done.returncode == 0
    for words in ("Learn to greet", "rlfactory-greeter 1.0", ">=1,<2", "2, fingerprint", "politeness"):
        assert words in done.stdout


LEVELS = '''
from typing import Literal
from rlfactory_core import Section, Task, hookimpl
class Levels(Task):
    class Config(Section):
        level: int
        """Of difficulty."""
        how_hard: Literal['easy', 'hard'] = 'easy'
@hookimpl
def rlfactory_tasks(register):
    register('levels', Levels)
'''


@pytest.mark.slow
def test_info_shows_the_options_of_a_task(rlfactory: Run, tmp_path: Path) -> None:
    file = tmp_path / "levels.py"
    file.write_text(LEVELS)
    lines = [" ".join(line.split()) for line in rlfactory("plugins", "info", str(file)).stdout.splitlines()]
    assert "level int has to be given Of difficulty." in lines
    assert "how_hard easy | hard default easy" in lines
    (task,) = json.loads(rlfactory("plugins", "info", str(file), "--json").stdout)["gives"]
    assert task["options"][0] == {"key": "level", "type": "int", "default": None, "doc": "Of difficulty."}


@pytest.mark.slow
def test_info_shows_where_a_broken_plugin_breaks(install: Install, rlfactory: Run, tmp_path: Path) -> None:
    done = rlfactory("plugins", "info", "broken", site=install("rlfactory_broken"))
    assert done.returncode == 1
    assert "import a_module_that_is_not_there" in done.stdout
    told = json.loads(rlfactory("plugins", "info", "broken", "--json", site=tmp_path / "site").stdout)
    assert "import a_module_that_is_not_there" in told["traceback"]


@pytest.mark.slow
def test_doctor_says_how_every_plugin_is(install: Install, rlfactory: Run) -> None:
    site = install("rlfactory_greeter", "rlfactory_manners", "rlfactory_broken", "rlfactory_future")
    done = rlfactory("plugins", "doctor", site=site)
    assert done.returncode == 1
    assert "ok        'greeter' (rlfactory-greeter 1.0), plugin API >=1,<2, fingerprint" in done.stdout
    assert "broken    The plugin 'broken' (rlfactory-broken 0.3) cannot be loaded" in done.stdout
    assert "          ModuleNotFoundError: No module named 'a_module_that_is_not_there'" in done.stdout
    assert "speaks plugin API >=2,<3" in done.stdout
    assert "conflict  rlfactory-greeter 1.0 and rlfactory-manners 0.9 both give the reward scorer" in done.stdout
    assert done.stdout.endswith("3 problems found.\n")


@pytest.mark.slow
def test_the_machines_doctor_counts_a_broken_plugin_as_a_problem(install: Install, rlfactory: Run) -> None:
    done = rlfactory("doctor", site=install("rlfactory_broken"))
    assert done.returncode == 1
    assert "problem  plugins       rlfactory-broken:broken: see `rlfactory plugins doctor`" in done.stdout
    assert rlfactory("doctor", RLFACTORY_DISABLE_PLUGINS="broken").returncode == 0


@pytest.mark.slow
def test_a_plugin_brings_its_own_command(install: Install, rlfactory: Run) -> None:
    site = install("rlfactory_greeter")
    assert rlfactory("greeter", "say", "Ada", site=site).stdout == "Hello Ada\n"
    assert "Greet NAME" in rlfactory("greeter", "--help", site=site).stdout


def test_a_plugin_without_a_command_says_what_it_is_for(install: Install, rlfactory: Run) -> None:
    done = rlfactory("manners", "say", site=install("rlfactory_manners"))
    assert done.returncode == 2
    assert "has no commands. To run its task: `rlfactory run --plugin manners`" in done.stderr


def test_an_unknown_command_gets_the_nearest_name(install: Install, rlfactory: Run) -> None:
    done = rlfactory("greter", site=install("rlfactory_greeter"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: There is no command 'greter'. Did you mean 'greeter'?\n"
    assert "Did you mean 'plugins'?" in rlfactory("plugin").stderr
    assert "Did you mean 'run'?" in rlfactory("train").stderr


@pytest.mark.slow
def test_errors_have_no_traceback_unless_asked_for(install: Install, rlfactory: Run) -> None:
    site = install("rlfactory_broken")
    plain = rlfactory("broken", site=site)
    assert plain.returncode == 2
    assert plain.stderr.startswith("error: The plugin 'broken'")
    assert "Traceback" not in plain.stderr
    assert "Traceback" in rlfactory("--debug", "broken", site=site).stderr
    assert "a_module_that_is_not_there" in rlfactory("broken", site=site, RLFACTORY_DEBUG="1").stderr


def test_wrong_usage_exits_with_2(rlfactory: Run) -> None:
    done = rlfactory("plugins", "list", "--jsn")
    assert done.returncode == 2
    assert "--jsn" in done.stderr


def test_version_and_help(rlfactory: Run) -> None:
    assert rlfactory("--version").stdout.startswith("rlfactory, version 0.")
    assert "Train a model on a plugin's task." in rlfactory("--help").stdout
