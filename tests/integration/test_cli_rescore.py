"""``rlfactory rescore``: the trajectories of an evaluation, scored anew with changed rewards and a changed plugin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_openai import Reply, said, serve

from rlfactory_core.cli.main import invoke
from rlfactory_core.reporting.folder import RunFolder

PLUGIN = '''
from rlfactory_core import Sample, Task, hookimpl, tool
from rlfactory_core.types import Score

PLACES = {"Ann": "Tarn", "Ben": "Velk", "Cyd": "Moor", "Dot": "Fell"}


@tool
def find(name: str) -> str:
    """Find a person."""
    return PLACES.get(name, "nobody")


class Places(Task):
    tools = [find]
    rewards = {"exact_match": 1.0, "named": 0.5}

    def samples(self, split):
        for name, place in PLACES.items():
            asked, metadata = f"Where is {name}?", {"pair": (name, place)}
            yield Sample(id=name, prompt=asked, answer=place, metadata=metadata, split=split)


class Named:
    """It compares a tuple, which JSON does not keep."""

    async def score(self, trajectory):
        name, place = pair = trajectory.sample.metadata["pair"]
        return float(pair == (name, place) and place in trajectory.turns[-1].message.content)


class Best:
    """Compares the attempts of a group: the shortest gets 1."""

    async def score_group(self, group):
        least = min(len(each.turns) for each in group.trajectories)
        return [Score(float(len(each.turns) == least)) for each in group.trajectories]


class Live:
    live_state = True

    async def score(self, trajectory):
        return 1.0


class Lost:
    worlds = {}

    async def score(self, trajectory):
        return self.worlds[trajectory.sample.id]


@hookimpl
def rlfactory_tasks(register):
    register("places", Places)


@hookimpl
def rlfactory_reward_scorers(register):
    for name, scorer in {"named": Named, "best": Best, "live": Live, "lost": Lost}.items():
        register(name, scorer)
'''


def answers(body: Mapping[str, Any]) -> Reply:
    """Greedy it looks up; at temperature 1 it guesses each second time."""
    first, last = body["messages"][0], body["messages"][-1]
    name = first["content"].removeprefix("Where is ").removesuffix("?")
    if body["temperature"] > 0 and body["seed"] % 2:
        return said("<answer>Tarn</answer>")
    return (
        said(None, ("find", json.dumps({"name": name})))
        if last["role"] == "user"
        else said(f"<answer>{last['content']}</answer>")
    )


@pytest.fixture
def evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunFolder:
    monkeypatch.chdir(tmp_path)
    Path("places.py").write_text(PLUGIN, encoding="utf-8")
    with serve(answers) as server:
        arguments = ["--api", server.url, "--model", "toy", "--attempts", "4", "--out", "done"]
        assert invoke(["eval", "--plugin", "./places.py", *arguments]) == 0
    capsys.readouterr()
    return RunFolder.open("done")


def rescored(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert invoke(["rescore", "done", *arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_same_reward_gives_the_same_scores(evaluation: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    found = rescored(capsys, "--expect-same")
    assert (found["attempts"], found["changed"], found["most_changed"]) == (20, 0, [])
    assert [part["name"] for part in found["parts"]] == ["evaluation after", "evaluation after, sampled", "all"]
    again = RunFolder(Path(found["folder"]))
    assert again.path.parent == evaluation.path
    assert again.read_summary()["eval"]["after"]["exact_match"] == 1.0
    before = [each.trajectory for each in evaluation.read_trajectories("eval-after-sampled")]
    after = [each.trajectory for each in again.read_trajectories("eval-after-sampled")]
    assert [each.turns for each in after] == [each.turns for each in before]
    assert [each.reward for each in after] == [each.reward for each in before]
    assert "Scored anew" in again.report.read_text(encoding="utf-8")


def test_a_changed_plugin_changes_the_scores_and_the_trace_shows_them(
    evaluation: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("places.py").write_text(PLUGIN.replace('"Ben": "Velk"', '"Ben": "Tarn"'), encoding="utf-8")
    assert invoke(["rescore", "done", "--out", "again", "--expect-same"]) == 1
    out = capsys.readouterr().out
    assert "has changed since the run began" in out
    assert "another answer or other metadata today for 1 sample, such as 'Ben': today's count." in out
    assert "evaluation after, Ben, attempt 0: 1.500 → 0.000: exact match 1 → 0, named 1 → 0" in out
    assert "rlfactory trace again --step after --sample Ben" in out
    assert invoke(["trace", "again", "--step", "after", "--sample", "Ben"]) == 0
    assert "rewards  exact match 0.000, named 0.000" in capsys.readouterr().out


def test_chosen_attempts_and_a_scorer_of_groups(evaluation: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    rewards = ["--reward", "best", "--reward", "exact_match=0"]
    whole = rescored(capsys, *rewards, "--out", "whole")
    guesses = rescored(capsys, *rewards, "--where", "tool_calls == 0", "--out", "guesses")
    assert 0 < guesses["attempts"] < whole["attempts"] == 20
    assert guesses["rewards"] == {"best": 1.0, "exact_match": 0.0}
    groups = RunFolder.open("whole").read_trajectories("eval-after-sampled")
    assert {each.trajectory.reward for each in groups if each.trajectory.num_tool_calls == 0} == {1.0}
    assert guesses["parts"][0]["scores"]["best"] == [None, 1.0]
    assert invoke(["rescore", "done", "--where", "turns > 9"]) == 2
    assert "there is nothing to score" in capsys.readouterr().err
    assert not list(evaluation.path.glob("*-rescored"))


def test_what_stored_trajectories_lack_is_refused(evaluation: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["rescore", "done", "--reward", "live"]) == 2
    assert "'live' reads the state of a live environment" in capsys.readouterr().err
    assert invoke(["rescore", "done", "--reward", "exact_match", "--reward", "lost"]) == 2
    assert "'lost' gives no score for any of 20 stored attempts" in capsys.readouterr().err
    broken = PLUGIN.replace('name, place = pair = trajectory.sample.metadata["pair"]', "raise KeyError('world')")
    Path("places.py").write_text(broken, encoding="utf-8")
    assert invoke(["rescore", "done"]) == 2
    assert "'named' gives no score for any of 4 stored attempts: KeyError: 'world'" in capsys.readouterr().err
    assert not list(evaluation.path.glob("*-rescored"))


def test_the_check_of_a_plugin_compares_with_a_run(evaluation: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["plugins", "check", "--run", "done", "--only", "stored"]) == 0
    assert "All 20 attempts got the same rewards." in capsys.readouterr().out
    Path("places.py").write_text(PLUGIN.replace("float(pair ==", "0.5 * float(pair =="), encoding="utf-8")
    assert invoke(["plugins", "check", "./places.py", "--run", "done", "--only", "stored"]) == 1
    out = capsys.readouterr().out
    assert "FAIL  stored" in out
    assert "evaluation after, Ann, attempt 0: 1.500 → 1.250: named 1 → 0.5" in out
    assert not list(evaluation.path.glob("*-rescored"))


def test_a_run_of_several_tasks_scores_each_with_its_own_rewards(
    evaluation: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = {name: {"plugin": str(Path("places.py").resolve())} for name in ("first", "second")}
    tasks["second"]["rewards"] = [{"name": "exact_match", "weight": 2.0}]  # type: ignore[assignment]
    folder = RunFolder.create("several", Path("several"))
    folder.write_config({"plugin": "first+second", "tasks": tasks, "model": "some/model"})
    stored = list(evaluation.read_trajectories("eval-after"))
    moved = [
        replace(each, trajectory=replace(each.trajectory, sample=replace(each.trajectory.sample, task=name)))
        for name in tasks
        for each in stored
    ]
    folder.write_stored("eval-after", moved)
    assert invoke(["rescore", "several", "--out", "again"]) == 0
    out = capsys.readouterr().out
    assert "4 of 8 attempts changed (4 higher)" in out
    again = [each.trajectory for each in RunFolder.open("again").read_trajectories("eval-after")]
    assert [each.reward for each in again] == [1.5] * 4 + [2.0] * 4
    assert invoke(["rescore", "several", "--reward", "best", "--out", "best"]) == 0
    best = [each.trajectory for each in RunFolder.open("best").read_trajectories("eval-after")]
    assert [set(each.score.components) for each in best if each.score] == [{"best"}] * 8
    assert invoke(["plugins", "check", "--run", "several", "--only", "stored"]) == 2
    assert "has several tasks" in capsys.readouterr().err
