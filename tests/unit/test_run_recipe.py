"""``--recipe NAME``: a plugin's configuration below the file and the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlfactory_core.cli.main import invoke
from rlfactory_core.settings import load_yaml

PLUGIN = """
from pathlib import Path
from rlfactory_core import Sample, Score, Section, Task, hookimpl


class Baking(Task):
    class Config(Section):
        oven: int = 180

    defaults = {"train": {"steps": 1, "lr": 1e-3, "group_size": 2}}
    rewards = {"taste": 1.0}

    def samples(self, split):
        return [Sample("1", "Bread?", "x")]


class Taste:
    async def score(self, trajectory):
        return Score(1.0)


class Still:
    def prepare(self, config):
        return config

    def train(self, run):
        return {"plugin": run.config.plugin, "steps": run.config.train.steps, "eval": {}}

    def evaluate(self, run):
        return {"reward": float(run.config.task["oven"])}


@hookimpl
def rlfactory_tasks(register):
    register("baking", Baking)


@hookimpl
def rlfactory_reward_scorers(register):
    register("taste", Taste)


@hookimpl
def rlfactory_engines(register):
    register("still", Still)


@hookimpl
def rlfactory_recipes(register):
    for path in sorted(Path(__file__).with_name("recipes").glob("*.yaml")):
        register(path.stem, lambda path=path: path)
"""
RECIPE = "plugin: {name}\nengine: still\ntask: {{oven: {oven}}}\ntrain: {{steps: 3, lr: 1.0e-4}}\n"

Command = Callable[..., str]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """The command line beside two plugins that are alike but for their names and what their recipe says."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path)
    for name, oven in (("baking", 230), ("grilling", 300)):
        package = tmp_path / "site" / f"rlfactory_{name}"
        (package / "recipes").mkdir(parents=True)
        (package / "plugin.py").write_text(PLUGIN.replace("baking", name))
        (package / "recipes" / "bread.yaml").write_text(RECIPE.format(name=name, oven=oven))
        info = tmp_path / "site" / f"rlfactory_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rlfactory-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[rlfactory]\n{name} = rlfactory_{name}.plugin\n")
    monkeypatch.setenv("RLFACTORY_DISABLE_PLUGINS", "grilling")

    def call(*arguments: object, code: int = 0) -> str:
        done = invoke(list(map(str, arguments)))
        captured = capsys.readouterr()
        assert done == code, captured
        return captured.err if code else captured.out

    yield call
    for name in [name for name in sys.modules if name.startswith(("rlfactory_baking", "rlfactory_grilling"))]:
        del sys.modules[name]


def shown(command: Command, *arguments: object) -> dict[str, Any]:
    Path("shown.yaml").write_text(command("run", *arguments, "--dry-run"))
    return load_yaml(Path("shown.yaml"))


def test_it_stands_between_the_tasks_defaults_and_the_users_own_keys(command: Command) -> None:
    config = shown(command, "--recipe", "bread")
    train = config["train"]
    assert (config["plugin"], config["task"], train["steps"], train["lr"]) == ("baking", {"oven": 230}, 3, 1e-4)
    assert train["group_size"] == 2
    Path("mine.yaml").write_text("train: {steps: 5, lr: 2.0e-4}\n")
    config = shown(command, "--recipe", "bread", "--config", "mine.yaml", "--steps", 7, "--oven", 200)
    assert (config["task"], config["train"]["steps"], config["train"]["lr"]) == ({"oven": 200}, 7, 2e-4)


@pytest.mark.slow
def test_a_run_by_recipe_is_resumed_like_any_other(command: Command) -> None:
    command("run", "--recipe", "bread", "--out", "run")
    assert load_yaml(Path("run/config.yaml"))["task"] == {"oven": 230}
    assert "--recipe cannot be given with it" in command("run", "--resume", "run", "--recipe", "bread", code=2)
    command("run", "--resume", "run", "--steps", 4)
    assert load_yaml(Path("run/config.yaml"))["train"]["lr"] == 1e-4


def test_eval_takes_one_too(command: Command) -> None:
    assert json.loads(command("eval", "--recipe", "bread", "--json"))["results"] == {"reward": 230.0}
    changed = command("eval", "--recipe", "bread", "--oven", 250, "--json")
    assert json.loads(changed)["results"] == {"reward": 250.0}


def test_an_unknown_one_gets_the_nearest_name(command: Command) -> None:
    said = command("run", "--recipe", "bred", code=2)
    assert "No recipe 'bred' is registered. Did you mean 'bread'?" in said
    assert not Path("runs").exists()


def test_of_two_plugins_one_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other plugin, whose reward and engine have the same names too, is then in nobody's way."""
    monkeypatch.delenv("RLFACTORY_DISABLE_PLUGINS")
    said = command("run", "--recipe", "bread", code=2)
    assert "rlfactory-baking 1.0 and rlfactory-grilling 1.0 both give the recipe 'bread'" in said
    assert shown(command, "--recipe", "rlfactory-grilling:bread")["task"] == {"oven": 300}


def test_a_recipe_that_cannot_be_read_is_named(command: Command) -> None:
    Path("site/rlfactory_baking/recipes/bread.yaml").write_text("plugin: [baking\n")
    assert "bread.yaml is not YAML" in command("run", "--recipe", "bread", code=2)
