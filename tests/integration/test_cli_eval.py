"""``rlfactory eval --api``: a one-file plugin, and a server that plays its oracle through the real tool."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from agent_programs import ASKING
from fake_openai import Reply, error, said, serve

from rlfactory_core.cli.main import invoke
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.tasks.traces import read_traces
from rlfactory_core.types import StopReason

PLUGIN = '''
from rlfactory_core import Sample, Section, Task, hookimpl, tool

PLACES = {"Ann": "Tarn", "Ben": "Velk", "Cyd": "Moor", "Dot": "Fell"}


@tool
def find(name: str) -> str:
    """Find a person.

    Args:
        name: the person.
    """
    return PLACES.get(name, "nobody")


@tool(name="find")
def lose(name: str) -> str:
    """Find a person."""
    return "nobody"


class Places(Task):
    class Config(Section):
        polite: bool = False

    tools = [find]
    rewards = {"exact_match": 1.0, "format": 0.1}

    def samples(self, split):
        for index, (name, place) in enumerate(PLACES.items()):
            asked = f"Where is {name}" + (", please?" if self.config.polite else "?")
            yield Sample(id=name, prompt=asked, answer=place, split=split, slice=("even", "odd")[index % 2])

    def controls(self):
        return {"lost": [lose]}


@hookimpl
def rlfactory_tasks(register):
    register("places", Places)
'''


def oracle(body: Mapping[str, Any]) -> Reply:
    """Looks the name up and repeats what the tool says; at temperature 1 it sometimes does not."""
    first, last = body["messages"][0], body["messages"][-1]
    if first["content"] == "Hello":
        return said("Hi")
    name = first["content"].removeprefix("Where is ").split("?")[0].split(",")[0]
    if last["role"] == "user":
        return said(None, ("find", json.dumps({"name": name})))
    careless = body["temperature"] > 0 and body["seed"] % 2
    return said(f"<answer>{'no idea' if careless else last['content']}</answer>")


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("places.py").write_text(PLUGIN, encoding="utf-8")
    return "./places.py"


def test_an_oracle_through_the_real_tool(plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serve(oracle) as server:
        assert (
            invoke(["eval", "--plugin", plugin, "--api", server.url, "--attempts", "8", "--out", "done", "--json"]) == 0
        )
    found = json.loads(capsys.readouterr().out)
    results = found["results"]
    assert found["model"] == f"toy at {server.url}"
    assert (results["exact_match"], results["exact_match/odd"], results["format"]) == (1.0, 1.0, 1.0)
    assert results["exact_match_low"] < 1.0 == results["exact_match_high"]
    assert 0.0 < results["sampled/exact_match"] < 1.0
    assert results["sampled/exact_match"] < results["sampled/pass@2"] < results["sampled/pass@8"] <= 1.0
    assert results["control/lost/exact_match"] == 0.0
    folder = RunFolder.open("done")
    summary = folder.read_summary()
    assert summary["eval"]["after"] == results
    assert (summary["engine"], summary["faults"]) == ("endpoint", {})
    stored = list(folder.read_trajectories("eval-after"))
    assert [item.trajectory.sample.id for item in stored] == ["Ann", "Ben", "Cyd", "Dot"]
    assert {item.trajectory.stop for item in stored} == {StopReason.FINAL_ANSWER}
    assert "OPENAI" not in folder.config.read_text()


TABLES = """
    def eval_tables(self, passes):
        from rlfactory_core.reporting import EvalTable

        attempts = {name: sum(len(group.trajectories) for group in groups) for name, groups in passes.items()}
        rows = [(group.sample.id, group.trajectories[0].score.value, None) for group in passes["greedy"]]
        rows.append(("odd", None, None))
        return [EvalTable("Ranks", ("who", "score", "rank"), rows, (f"attempts: {attempts}",))]


@hookimpl
"""


def test_a_task_adds_its_own_table(plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(plugin).write_text(PLUGIN.replace("\n\n@hookimpl\n", TABLES), encoding="utf-8")
    with serve(oracle) as server:
        own = ["eval", "--plugin", plugin, "--api", server.url, "--attempts", "2", "--out", "done"]
        assert invoke(own) == 0
    printed = capsys.readouterr().out
    assert "Ranks" in printed
    assert "Dot   1.100" in printed
    assert printed.count("odd") == 1 < printed.count("even")  # what the table has is not said above it, too
    (table,) = RunFolder.open("done").read_summary()["tables"]
    *attempts, _ = table["rows"]
    assert attempts == [[name, pytest.approx(1.1), None] for name in ("Ann", "Ben", "Cyd", "Dot")]
    counted, conditions = table["notes"]
    assert counted == "attempts: {'greedy': 4, 'sampled': 8}"
    assert f"Model toy at {server.url}; the server's chat template; greedy" in conditions


AGENT = (
    ASKING
    + """
messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": sample["prompt"]}]
first = ask(messages)
print(ask([*messages, first, {"role": "user", "content": "Sure?"}])["content"])
"""
)


@pytest.mark.slow
def test_a_teacher_behind_a_server_is_recorded_as_traces(plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the task's own loop asked it, and what an agent of the user's own asked it, with its own prompts."""
    Path("agent.py").write_text(AGENT)
    Path("data.jsonl").write_text('{"prompt": "Who?", "answer": "Ann"}\n{"prompt": "When?", "answer": "Now"}\n')
    agent = [
        "--agent",
        f"{sys.executable} agent.py",
        "--data",
        "data.jsonl",
        "data.columns.answer=answer",
        "--reward",
        "exact_match",
    ]
    with serve(oracle) as server:
        few = ["--api", server.url, "eval.sampled=false", "--out"]
        assert invoke(["eval", "--plugin", plugin, *few, "tools"]) == 0
    with serve(lambda body: said("Ann, I think." if len(body["messages"]) < 3 else "Ann")) as server:
        few = ["--api", server.url, "eval.sampled=false", "--out"]
        assert invoke(["eval", *agent, *few, "agent"]) == 0
    for name in ("tools", "agent"):
        assert invoke(["trace", name, "--export", f"{name}.jsonl", "--where", "exact_match == 1"]) == 0
    capsys.readouterr()
    tools, asked = (read_traces(Path(f"{name}.jsonl")) for name in ("tools", "agent"))
    assert [message.content for message in tools[0].messages] == ["Where is Ann?", "", "Tarn", "<answer>Tarn</answer>"]
    assert (len(tools), [tool.name for tool in tools[0].tools or ()]) == (4, ["find"])
    assert [[(each.role, each.content) for each in trace.messages] for trace in asked] == [
        [
            ("system", "Be brief."),
            ("user", "Who?"),
            ("assistant", "Ann, I think."),
            ("user", "Sure?"),
            ("assistant", "Ann"),
        ]
    ]


def test_the_table_and_the_trace_are_for_people(plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serve(oracle) as server:
        arguments = ["--model", "toy", "--samples", "2", "--out", "done", "eval.sampled=false", "--polite"]
        assert invoke(["eval", "--plugin", plugin, "--api", server.url, *arguments]) == 0
    out = capsys.readouterr().out
    assert "exact match         1.000 [0.342, 1.000]   0.000 [0.000, 0.658]" in out
    assert "control: lost" in out
    assert "sampled at T=1" not in out
    assert "2 samples" in out
    assert invoke(["trace", "done", "--limit", "1"]) == 0
    trace = capsys.readouterr().out
    assert "| [user] Where is Ann, please?" in trace
    assert '> find({"name": "Ann"})' in trace
    assert "| [tool] Tarn" in trace
    assert "> <answer>Tarn</answer>" in trace


def test_a_run_brings_its_plugin_and_its_configuration(plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder.create("places")
    run.write_config({"plugin": plugin, "task": {"polite": True}, "rollout": {"max_turns": 1}, "eval": {"limit": 1}})
    with serve(oracle) as server:
        assert invoke(["eval", "--model", run.name, "--api", server.url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["results"]["samples"], found["results"]["exact_match"]) == (1, 0.0)
    (stored,) = RunFolder.open(found["folder"]).read_trajectories("eval-after")
    assert stored.trajectory.stop is StopReason.MAX_TURNS
    assert stored.trajectory.sample.prompt == "Where is Ann, please?"
    assert invoke(["eval", "--model", run.name]) == 2
    assert "has no checkpoint" in capsys.readouterr().err
    assert invoke(["eval", "--model", run.name[:-1]]) == 2
    assert f"Did you mean '{run.name}'" in capsys.readouterr().err


def test_faults_in_mid_run_are_masked_and_said(plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    def flaky(body: Mapping[str, Any]) -> Reply:
        return error(400, "no more Ben") if "Ben" in str(body["messages"]) else oracle(body)

    with serve(flaky) as server:
        assert invoke(["eval", "--plugin", plugin, "--api", server.url, "--out", "done", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert (results["exact_match"], results["samples"], results["masked"]) == (1.0, 4, 1)
    assert RunFolder.open("done").read_summary()["faults"] == {"infra": 1}


def test_when_nothing_could_be_measured_the_reason_is_given(plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    def only_hello(body: Mapping[str, Any]) -> Reply:
        return said("Hi") if body["messages"][0]["content"] == "Hello" else error(400, "out of quota")

    with serve(only_hello) as server:
        assert invoke(["eval", "--plugin", plugin, "--api", server.url, "--out", "done"]) == 2
    said_ = capsys.readouterr().err
    assert "Nothing was measured" in said_
    assert "out of quota" in said_
    assert "rlfactory trace done" in said_


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "No plugin is named"),
        (["--plugin", "./places.py", "--api", "nowhere"], "http://HOST:PORT/v1"),
        (["--plugin", "./places.py", "--api", "http://127.0.0.1:9/v1", "--politer"], "Did you mean 'task.polite'"),
        (["--plugin", "./places.py", "--api", "http://127.0.0.1:9/v1"], "cannot be reached"),
        (["--plugin", "./places.py", "--api", "http://127.0.0.1:9/v1", "--data", "no.jsonl"], "/no.jsonl."),
    ],
)
def test_wrong_input_is_refused_and_leaves_no_folder(
    plugin: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["eval", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(Path("runs").glob("*"))
