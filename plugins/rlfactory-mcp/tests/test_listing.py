"""What servers say of themselves and of their tools, as odd as they write it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any, cast

import pytest
from mcp_calls import OpenedServers, opened, servers
from rlfactory_mcp.calls import render
from rlfactory_mcp.compat import Listing, RpcError, Session
from rlfactory_mcp.listing import introduce

from rlfactory_core.errors import BackendError, ToolError, UsageError

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
ECHO = {"name": "echo", "description": "Say.", "inputSchema": SCHEMA}
GOOD = {"name": "good", "inputSchema": {"type": "object", "properties": {}}}
INFO = {"capabilities": {"tools": {}}, "serverInfo": {"name": "it", "version": "1"}}


class OddSession:
    """Answers the handshake and each page of the list with what it is given."""

    problem = ""

    def __init__(self, answer: Mapping[str, Any], *pages: Mapping[str, Any]) -> None:
        self._answer, self._pages = answer, list(pages)

    async def introduce(self) -> Mapping[str, Any]:
        return self._answer

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self._pages:
            raise RpcError(-32601, "no such method")
        return self._pages.pop(0) if len(self._pages) > 1 else self._pages[0]


def listed(*tools: Any, **page: Any) -> Listing:
    return asyncio.run(introduce(cast(Session, OddSession(INFO, {"tools": list(tools), **page}))))


@pytest.mark.parametrize(
    "change",
    [
        {"inputSchema": {**SCHEMA, "type": None}},
        {"inputSchema": json.dumps(SCHEMA)},
        {"inputSchema": None, "input_schema": SCHEMA},
        {"outputSchema": {"type": "array"}, "title": 1, "icons": "x.png", "_meta": [], "execution": {"taskSupport": 1}},
        {"annotations": {"readOnlyHint": "yes"}},
        {"annotations": []},
    ],
)
def test_slips_that_are_plain(change: dict[str, Any]) -> None:
    found = listed({**ECHO, **change})
    (tool,) = found.tools
    assert (tool.name, tool.description, dict(tool.parameters), tool.idempotent) == ("echo", "Say.", SCHEMA, False)
    assert found.problems == ()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (None, ["entry 0", "null"]),
        ("echo", ["entry 0", '"echo"']),
        ({**ECHO, "name": ""}, ["entry 0", "name"]),
        ({"inputSchema": SCHEMA}, ["entry 0", "name is null"]),
        ({**ECHO, "inputSchema": []}, ["'echo' is left out", "inputSchema", "[]"]),
        ({**ECHO, "inputSchema": {"type": "string"}}, ["'echo' is left out", "inputSchema", '"string"']),
    ],
)
def test_an_odd_tool_is_left_out_and_the_others_stay(entry: Any, words: list[str]) -> None:
    found = listed(entry, GOOD)
    assert [tool.name for tool in found.tools] == ["good"]
    (problem,) = found.problems
    for word in words:
        assert word in problem


def test_a_slip_that_loses_something_is_said() -> None:
    found = listed({**ECHO, "description": ["a"], "inputSchema": {"properties": {"text": {"type": "colour"}}}})
    assert dict(found.tools[0].parameters["properties"]) == {"text": {}}
    assert ["inputSchema.properties.text.type" in found.problems[0], "description" in found.problems[1]] == [True, True]
    found = listed(ECHO, {**ECHO, "description": "Other."}, ECHO)
    assert [tool.description for tool in found.tools] == ["Say."]
    assert "a second tool named 'echo'" in found.problems[0]


def test_a_list_whose_pages_do_not_end_and_one_that_is_none() -> None:
    assert [tool.name for tool in listed(ECHO, nextCursor=7).tools] == ["echo"]
    for tools in (None, {"echo": ECHO}, "x"):
        found = asyncio.run(introduce(cast(Session, OddSession(INFO, {"tools": tools}))))
        assert (found.tools, "has no list of tools" in found.problems[0]) == ((), True)


@pytest.mark.parametrize("answer", [{}, {"capabilities": None, "serverInfo": "x"}, {"capabilities": {"tools": None}}])
def test_a_server_that_says_little_of_itself(answer: dict[str, Any]) -> None:
    assert [t.name for t in asyncio.run(introduce(cast(Session, OddSession(answer, {"tools": [ECHO]})))).tools] == [
        "echo"
    ]
    assert asyncio.run(introduce(cast(Session, OddSession(answer)))) == Listing("", ())


_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = json.loads(sys.argv[1])[asked["method"]]
        print(json.dumps({"id": asked["id"], "error": None, "result": result}), flush=True)
"""


def odd(tools: Any, version: Any = "1.0") -> dict[str, Any]:
    """A real server whose answers no release of the SDK takes."""
    answers = {
        "initialize": {"protocolVersion": version, "capabilities": [], "serverInfo": None, "instructions": 5},
        "tools/list": {"tools": tools, "_meta": []},
        "tools/call": {"content": "plain"},
    }
    return {"command": sys.executable, "args": ["-c", _SERVER, json.dumps(answers)]}


def test_a_server_that_the_sdk_refuses(caplog: pytest.LogCaptureFixture) -> None:
    async def work(it: OpenedServers) -> str:
        return await it.call("echo", text="x")

    deep: dict[str, Any] = {}
    for _ in range(300):  # too deep for the SDK's parser
        deep = {"items": deep}
    assert opened(servers(it=odd([None, ECHO, {**GOOD, "inputSchema": deep}])), work) == "plain"
    assert "MCP server it: it speaks the protocol's version '1.0'" in caplog.text
    assert "MCP server it: entry 0 of its tools is left out: it is null" in caplog.text
    assert "MCP server it: the tool 'good' is left out because of its inputSchema" in caplog.text
    with pytest.raises(UsageError, match="entry 0 of its tools is left out"):
        opened(servers(it=odd([None], "2025-06-18")), work)


def test_what_a_server_prints_in_place_of_messages_is_in_the_error() -> None:
    usage = {"command": sys.executable, "args": ["-c", "print('usage: server FILE'); print('no FILE', end='')"]}
    with pytest.raises(BackendError) as caught:
        opened(servers(it=usage), None)  # type: ignore[arg-type]
    assert "it ended with exit code 0" in str(caught.value)
    assert "    usage: server FILE\n    no FILE" in str(caught.value)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": "plain"}, "plain"),
        ({"text": "plain"}, "plain"),
        ({"answer": 1}, '{"answer":1}'),
        ({"content": None}, ""),
        ({"content": None, "structuredContent": {"a": 1}}, '{"a":1}'),
        ({"content": [None, "a", {"type": "text", "text": None}, {"type": "text", "text": {"b": 1}}]}, 'a\n\n{"b":1}'),
        ({"content": {"type": "text", "text": "one"}, "isError": "false"}, "one"),
    ],
)
def test_results_of_another_form(result: dict[str, Any], text: str) -> None:
    assert render(result) == text


def test_an_error_that_is_written_as_text() -> None:
    with pytest.raises(ToolError, match="boom"):
        render({"content": "boom", "isError": "true"})
    for key, said in (("isError", 1), ("is_error", True)):
        with pytest.raises(ToolError, match="boom"):
            render({"content": "boom", key: said})
