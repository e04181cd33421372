"""A task whose only tool is an agent with a tool of its own, from the command line."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_openai import Reply, said, serve
from runs import Cli

PLUGIN = '''
from rlfactory_agents import agent_tool
from rlfactory_core import Sample, Section, Task, ToolContext, hookimpl, tool


@tool
def look(context: ToolContext) -> str:
    """Look around."""
    return context.sample.metadata["place"]


class Places(Task):
    class Config(Section):
        helper: str

    def __init__(self, config=None, seed=0):
        super().__init__(config, seed)
        self.tools = [agent_tool("scout", self.config.helper, "helper", [look], description="Sends somebody.")]

    def samples(self, split):
        for name, place in {"Ann": "Tarn", "Ben": "Velk"}.items():
            yield Sample(name, f"Where is {name}?", place, {"place": place}, split)


@hookimpl
def rlfactory_tasks(register):
    register("places", Places)
'''


def answer(body: Mapping[str, Any]) -> Reply:
    """The policy sends the scout and repeats what it says; the scout looks and repeats what it sees."""
    last = body["messages"][-1]["content"]
    if body["messages"][0]["content"] == "Hello":
        return said("Hi")
    if body["messages"][-1]["role"] == "user":
        name, given = ("look", {}) if body["model"] == "helper" else ("scout", {"task": last})
        return said(None, (name, json.dumps(given)))
    return said(last if body["model"] == "helper" else f"<answer>{last}</answer>")


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("places.py").write_text(PLUGIN, encoding="utf-8")
    return "./places.py"


@pytest.mark.slow
def test_an_agent_helps_the_policy(plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serve(answer, models=["policy", "helper"]) as server:
        where = ("--api", server.url, "--model", "policy", "--helper", server.url)
        outcome = Cli(capsys)("eval", "--plugin", plugin, *where, "--out", "done", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["results"]["exact_match"] == 1.0


def test_a_helper_that_is_not_there_ends_it_before_it_begins(plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused, serve(answer, models=["policy"]) as server:
        unused.bind(("127.0.0.1", 0))  # bound, not listening
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}"
        message = Cli(capsys).refusal("eval", "--plugin", plugin, "--api", server.url, "--helper", dead)
    assert "tool 'scout'" in message
    assert "cannot be reached" in message
    assert server.chats == []
