"""`Sample.tools`: each sample's episodes see and call only the tools that it names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rlfactory_devkit import TaskBench, script
from runs import Cli
from tool_calls import CONTEXT, echo, write

from rlfactory_core.tools import DefaultToolManager, tool
from rlfactory_core.tools.offered import OfferedTools
from rlfactory_core.types import FaultKind, Message, ToolCall, ToolResult

TASK = """
from rlfactory_core import Sample, Task, hookimpl, tool

@tool
async def look() -> str:
    "Look."
    return "a door"

@tool
async def go() -> str:
    "Go."
    return "gone"

class Walk(Task):
    tools = (look, go)

    def samples(self, split):
        named = {"all": None, "one": ("look",), "none": ()}
        return [Sample(name, "Where?", "here", tools=tools) for name, tools in named.items()]

@hookimpl
def rlfactory_tasks(register):
    register("walk", Walk)
"""


@tool
async def look(where: str) -> str:
    """Look.

    Args:
        where: a place.
    """
    return f"nothing in {where}"


@pytest.fixture
def walk(tmp_path: Path) -> Path:
    (tmp_path / "walk.py").write_text(TASK)
    return tmp_path / "walk.py"


def test_other_tools_do_not_exist() -> None:
    async def work() -> tuple[ToolResult, ...]:
        manager = OfferedTools(DefaultToolManager([echo, look]), ("look",))
        assert [spec.name for spec in manager.specs] == ["look"]
        calls = [write("echo", {"text": "x"}), write("look", {"where": "town"}), write("lok", {})]
        return await manager.invoke(calls, CONTEXT)

    refused, made, misspelt = asyncio.run(work())
    assert (refused.content, refused.fault) == ('Error: there is no tool "echo". Known: look.', FaultKind.POLICY)
    assert (made.content, made.fault) == ("nothing in town", None)
    assert "Did you mean 'look'?" in misspelt.content


def test_each_sample_has_its_own_tools(walk: Path) -> None:
    calls = (ToolCall("0", "look", "{}", {}), ToolCall("1", "go", "{}", {}))
    with TaskBench(str(walk)) as bench:
        policy = script(Message("assistant", "", tool_calls=calls), "<answer>here</answer>")
        played = {each.sample.id: each for each in bench.play(policy, bench.samples())}
        prompts = {
            name: len(bench.runtime.use_chat(bench.chat).prompt_ids(played[name].sample) or ()) for name in played
        }
    offered = {name: [spec.name for spec in each.tools] for name, each in played.items()}
    assert offered == {"all": ["look", "go"], "one": ["look"], "none": []}
    results = {name: [result.fault for result in each.turns[0].results] for name, each in played.items()}
    policy_fault = FaultKind.POLICY
    assert results == {"all": [None, None], "one": [None, policy_fault], "none": [policy_fault, policy_fault]}
    assert prompts["all"] > prompts["one"] > prompts["none"]


def test_a_tool_that_the_task_does_not_have_is_refused_before_the_run(walk: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "rows.jsonl").write_text(
        '{"id": "7", "prompt": "Where?", "answer": "here", "tools": ["look", "run"]}\n'
    )
    columns = ("data.columns.id=id", "data.columns.answer=answer")
    given = ("run", "--plugin", walk, "--data", tmp_path / "rows.jsonl", *columns, "--out", tmp_path / "out")
    told = cli.refusal(*given, "--model", tmp_path)
    assert "Sample '7' may use the tool \"run\", which the task does not have. Known: go, look." in told
