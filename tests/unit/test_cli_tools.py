"""``rlfactory tools``: what a person sees of a one-file plugin's tools, and what a call by hand comes to."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp_calls import fake
from runs import Cli, finish, group_members, start, wait_for_no_process, wait_until

from rlfactory_core.cli.tools import type_text
from rlfactory_core.tools import tool

PLUGIN = '''
import asyncio
import pathlib
from typing import Literal

from rlfactory_core import Sample, Section, Task, ToolContext, ToolEnv, ToolError, hookimpl, tool


@tool
def repeat(text: str, times: int = 2, separator: str | None = None) -> str:
    """Repeat a text.

    Args:
        text: what to repeat.
        times: how often.
        separator: what stands between.
    """
    return (separator or " ").join([text] * times)


@tool
def asked(context: ToolContext) -> str:
    """Tell which question is asked."""
    return f"{context.sample.id}: {context.sample.prompt}"


@tool
def refuse(mood: Literal["firm", "polite"]) -> str:
    """Refuse."""
    raise ToolError(f"no, and {mood}")


@tool
async def wait() -> str:
    """Wait for ever."""
    pathlib.Path("waiting").touch()
    await asyncio.Event().wait()


@tool
def look(context: ToolContext) -> str:
    """Look around."""
    return context.state["place"]


class Room(ToolEnv):
    def __init__(self, sample, manager, context):
        super().__init__(sample, manager, context)
        self.state = context.state

    async def start(self):
        self.state["place"] = "a room"
        return await super().start()

    async def close(self):
        pathlib.Path("left").touch()


class Echo(Task):
    class Config(Section):
        greeting: str = "Hello"

    tools = [repeat, asked, refuse, wait, look]

    def samples(self, split):
        yield Sample("first", self.config.greeting)
        raise RuntimeError("nobody needs a second one")

    def make_env(self, sample, manager, context):
        return Room(sample, manager, context)

    async def close(self):
        pathlib.Path("closed").touch()


@hookimpl
def rlfactory_tasks(register):
    register("echo", Echo)
'''


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    Path("echo.py").write_text(PLUGIN, encoding="utf-8")
    return Cli(capsys)


def test_the_list_is_for_people(cli: Cli) -> None:
    listed = cli("tools", "list", "--plugin", "./echo.py")
    assert listed.code == 0
    first = listed.out.split("\n\n", 1)[0].splitlines()
    assert [line.rstrip() for line in first] == [
        "repeat  (task)",
        "  Repeat a text.",
        "    text        string          required    what to repeat.",
        "    times       integer         default 2   how often.",
        "    separator   string | null   optional    what stands between.",
    ]
    assert '    mood   "firm" | "polite"   required' in listed.out
    assert "  Tell which question is asked.\n    takes no arguments" in listed.out, listed.out
    assert Path("closed").exists()


def test_as_json_it_is_what_the_model_is_told(cli: Cli) -> None:
    schemas = json.loads(cli("tools", "list", "--plugin", "./echo.py", "--json").out)
    assert [schema["function"]["name"] for schema in schemas] == ["repeat", "asked", "refuse", "wait", "look"]
    assert {schema["type"] for schema in schemas} == {"function"}
    assert schemas[0]["function"]["parameters"]["required"] == ["text"]
    assert "context" not in json.dumps(schemas[1])


def test_a_disabled_tool_is_not_listed_to_the_model(cli: Cli) -> None:
    given = ("tools", "list", "--plugin", "./echo.py", "--json", "tools.disabled=[wait, look]")
    schemas = json.loads(cli(*given).out)
    assert [schema["function"]["name"] for schema in schemas] == ["repeat", "asked", "refuse"]
    found = json.loads(cli(*given, "--servers", "tools.overrides.repeat.deadline_s=7").out)
    assert [tool["disabled"] for tool in found["tools"]] == [False, False, False, True, True]
    assert [tool["limits"]["deadline_s"] for tool in found["tools"]] == [7.0, 30.0, 30.0, 30.0, 30.0]
    assert "there is no tool 'waits'. Did you mean 'wait'?" in cli.refusal(*given[:4], "tools.disabled=[waits]")


def test_a_server_that_fails_leaves_out_only_its_own_tools(cli: Cli) -> None:
    pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")
    broken = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no such key')"]}
    unset = {"command": sys.executable, "args": ["${NOWHERE_SET}"]}
    servers = {"good": fake("--tools", "echo,count"), "broken": broken, "unset": unset, "picky": fake(allow=["ecko"])}
    Path("mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    given = ("tools", "list", "--plugin", "./echo.py", "--mcp", "mcp.json", "--servers", "tools.disabled=[count]")
    done = cli(*given, "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert [tool["function"]["name"] for tool in found["tools"] if tool["server"] == "good"] == ["echo", "count"]
    assert len(found["tools"]) == 7
    problems = {server["name"]: server["problem"] for server in found["servers"]}
    assert problems["good"] == ""
    assert "no such key" in problems["broken"]
    assert "NOWHERE_SET, which is not set" in problems["unset"]
    assert "'ecko' matches no tool of the server. Did you mean 'echo'?" in problems["picky"]
    told = cli(*given).out
    assert "count  good  disabled" in told
    assert "MCP server good: ready" in told
    assert "MCP server broken: failed:" in told


@pytest.mark.parametrize(
    ("words", "content"),
    [
        (["text=ab"], "ab ab"),
        (["text=7", "times=3"], "7 7 7"),  # a string stays one, a number becomes one
        (["text=null", "times=1"], "null"),
        (["text=a=b", "times=1"], "a=b"),
        (["text=a", "separator=1"], "a1a"),
        (['{"text": "é", "times": 1}'], "é"),
        (['{"text": "a"}', "times=1"], "a"),
    ],
)
def test_a_call_takes_json_or_single_arguments(cli: Cli, words: list[str], content: str) -> None:
    called = cli("tools", "call", "repeat", "--plugin", "./echo.py", *words)
    assert (called.code, called.out) == (0, content + "\n")
    assert called.err.startswith("no fault, 0.")
    assert called.err.endswith("s, 1 attempt\n")


@pytest.mark.parametrize(
    ("words", "content", "fault"),
    [
        (["repeat", "text=a", "times=often"], "wrong arguments for repeat: 'times' must be of type integer", "policy"),
        (["repeat", "texts=a"], "Did you mean 'text' or 'times'?", "policy"),
        (["repaet"], "Did you mean 'repeat'?", "policy"),
        (["refuse", "mood=firm"], "Error: no, and firm", "tool"),
        (["wait", "tools.deadline_s=0.05"], "Error: wait did not answer in time.", "infra"),
    ],
)
def test_a_fault_is_shown_as_the_model_sees_it_and_fails_the_command(
    cli: Cli, words: list[str], content: str, fault: str
) -> None:
    called = cli("tools", "call", *words, "--plugin", "./echo.py")
    assert called.code == 1
    assert content in called.out
    assert called.err.splitlines()[-1].startswith(f"{fault} fault, 0.")


def test_the_whole_result_as_json_under_a_changed_configuration(cli: Cli) -> None:
    limits = ("tools.max_result_tokens=2", "tools.cache=memory")
    called = cli("tools", "call", "repeat", "text=abcd", "times=100", "--plugin", "./echo.py", "--json", *limits)
    result: dict[str, Any] = json.loads(called.out)
    assert called.code == 0
    assert (result["truncated"], result["size_bytes"], result["fault"]) == (True, 499, None)
    assert result["content"].startswith("abcd abc\n[truncated")
    assert called.err == ""


def test_a_tool_that_knows_its_sample_gets_the_task_s_first_one(cli: Cli) -> None:
    options = ("--plugin", "./echo.py", "--greeting", "Good day")
    assert cli("tools", "call", "asked", *options).out == "first: Good day\n"
    Path("own.jsonl").write_text('{"prompt": "Mine?", "answer": "x"}\n', encoding="utf-8")
    data = ("data.train=own.jsonl", "data.columns.answer=answer")
    assert cli("tools", "call", "asked", *options, *data).out == "0: Mine?\n"


def test_the_environment_is_started_before_the_call_and_closed_after_it(cli: Cli) -> None:
    assert cli("tools", "call", "look", "--plugin", "./echo.py").out == "a room\n"
    assert Path("left").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list"], "No plugin is named"),
        (["list", "--plugin", "./echo.py", "--greting", "x"], "Did you mean 'task.greeting'"),
        (["call", "repeat", "--plugin", "./echo.py", '{"text": '], "is not a JSON object"),
        (["call", "repeat", "--plugin", "./echo.py", "text"], "Got 'text'"),
        (["call", "repeat", "--plugin", "./ehco.py"], "No plugin file"),
        (
            ["call", "repeat", "--plugin", "./echo.py", "tools.overrides={repaet: {}}"],
            "Did you mean 'repeat'",
        ),
    ],
)
def test_what_is_not_understood_is_refused(cli: Cli, words: list[str], message: str) -> None:
    assert message in cli.refusal("tools", *words)


def test_ctrl_c_closes_the_task(cli: Cli, tmp_path: Path) -> None:
    process = start("tools", "call", "wait", "--plugin", "./echo.py", "tools.deadline_s=600", cwd=tmp_path)
    wait_until(lambda: Path("waiting").exists(), process, 60)
    os.killpg(process.pid, signal.SIGINT)
    stopped = finish(process, 60)
    assert (stopped.code, stopped.out.strip()) == (130, "stopped")
    assert Path("closed").exists()
    wait_for_no_process(process.pid)
    assert not group_members(process.pid)


def test_types_are_said_in_a_few_words() -> None:
    @tool
    def many(
        a: list[int], b: list[str | int], c: dict[str, Any], d: Any, e: Literal[1, "x"], f: float | None, g: list[Any]
    ) -> None: ...

    schema = many.spec.parameters
    texts = [type_text(part, schema) for part in schema["properties"].values()]
    assert texts == [
        "array of integer", "array of (string | integer)", "object", "any", '1 | "x"', "number | null", "array",
    ]  # fmt: skip
    defined = {"$defs": {"Colour": {"enum": ["red"]}, "Place": {"type": "object"}}}
    assert type_text({"$ref": "#/$defs/Colour"}, defined) == '"red"'
    assert type_text({"$ref": "#/$defs/Place"}, defined) == "Place"
    assert type_text({"type": ["string", "null"]}, {}) == "string | null"
    assert type_text({"const": 3}, {}) == "3"
