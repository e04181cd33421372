"""What the tools of a server are and answer, over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_calls import OpenedServers, answer, fake, opened, servers
from rlfactory_mcp.source import McpSource

from rlfactory_core.errors import (
    MissingExtraError,
    ToolArgumentsError,
    ToolError,
    ToolFailedError,
    ToolUnavailableError,
    UsageError,
)
from rlfactory_core.protocols import Tool, ToolSource
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.types import FaultKind, ToolCall

pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")


def test_tools_are_what_the_server_lists_over_all_pages() -> None:
    async def work(it: OpenedServers) -> None:
        assert isinstance(it.source, ToolSource)
        assert all(isinstance(tool, Tool) for tool in it.tools.values())
        assert len(it.tools) == 16
        echo = it.tools["echo"]
        assert echo.spec.description == "Does echo."
        assert echo.spec.parameters == {"type": "object", "properties": {"text": {"type": "string"}}}
        assert "dotted_n_me" in it.tools
        assert await it.call("dotted_n_me") == "dotted"

    opened(servers(it=fake("--page", "3")), work)


def test_what_may_be_retried_and_cached_and_for_how_long() -> None:
    async def plain(it: OpenedServers) -> None:
        assert [it.tools[name].idempotent for name in ("echo", "pid", "count")] == [True, True, False]
        assert it.tools["echo"].stateful
        assert it.tools["echo"].deadline_s is None

    async def told(it: OpenedServers) -> None:
        assert it.tools["count"].idempotent
        assert not it.tools["count"].stateful
        assert it.tools["count"].deadline_s == 2.5

    opened(servers(it=fake()), plain)
    opened(servers(it=fake(idempotent=True, stateful=False, timeout=2.5)), told)


def test_the_version_changes_with_the_server_and_not_between_starts() -> None:
    def version(*flags: str, **options: Any) -> str:
        async def work(it: OpenedServers) -> str:
            return it.tools["echo"].version

        found: str = opened(servers(it=fake("--tools", "echo", *flags, **options)), work)
        return found

    assert version("--version", "1.0") == version("--version", "1.0")
    assert version("--version", "1.0") != version("--version", "2.0")
    assert version("--version", "1.0") != version("--version", "1.0", env={"TENANT": "7"})  # other data, other answers


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("image", "[image, image/png, 6 bytes: not shown]"),
        ("audio", "[audio, audio/wav, 3 bytes: not shown]"),
        ("resource", "inside"),
        ("blob", "[resource file:///b, application/zip, 6 bytes: not shown]"),
        ("link", "[c: third](file:///c)"),
        ("structured", '{"answer":42}'),
        ("both", "42"),
        ("several", "one\ntwo"),
        ("nothing", ""),
        ("half", "half \ud83d"),
    ],
)
def test_content_becomes_text(kind: str, text: str) -> None:
    assert answer(servers(it=fake()), "show", kind=kind) == text


@pytest.mark.parametrize(
    ("name", "arguments", "error", "text"),
    [
        ("show", {"kind": "error"}, ToolError, "no such city"),
        ("show", {"kind": "invalid"}, ToolFailedError, "the server's answer is not valid"),
        ("refuse", {"code": -32602, "message": "seconds is negative"}, ToolArgumentsError, "seconds is negative"),
        ("refuse", {"code": -32603, "message": "/srv/db is locked"}, ToolFailedError, "/srv/db is locked"),
        ("refuse", {"code": -32000, "message": "no such key"}, ToolError, "no such key"),
    ],
)
def test_whose_fault_an_error_is(name: str, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    async def work(it: OpenedServers) -> None:
        with pytest.raises(error, match=text) as caught:
            await it.call(name, **arguments)
        assert type(caught.value) is error
        assert await it.call("echo", text="goes on") == "goes on"

    opened(servers(it=fake()), work)


@pytest.mark.parametrize("code", [-32700, -32600, -32601])
def test_an_error_that_no_arguments_lead_to_is_the_infrastructures_fault(code: int) -> None:
    async def work(it: OpenedServers) -> None:
        with pytest.raises(ToolUnavailableError, match="did not answer: gateway"):
            await it.call("refuse", code=code, message="gateway")
        assert await it.call("echo", text="goes on") == "goes on"

    opened(servers(it=fake()), work)


@pytest.mark.parametrize("with_error", [True, False])
def test_a_tool_that_the_server_has_dropped_is_not_the_models_fault(with_error: bool) -> None:
    async def work(it: OpenedServers) -> None:
        await it.call("forget", tool="recall", with_error=with_error)
        with pytest.raises(ToolUnavailableError, match="does not offer the tool recall any more"):
            await it.call("recall", key="k")
        with pytest.raises(ToolArgumentsError, match="not found"):  # of a tool that is offered
            await it.call("refuse", code=-32602, message="Tool x not found")

    opened(servers(it=fake()), work)


@pytest.mark.parametrize("wrong", ["\ud83d", float("nan"), [{"deep": float("-inf")}]])
def test_what_no_server_could_read_is_the_models_fault(wrong: Any) -> None:
    async def work(it: OpenedServers) -> None:
        with pytest.raises(ToolArgumentsError, match="half a character"):
            await it.call("echo", text=wrong)
        assert await it.call("echo", text="goes on") == "goes on"

    opened(servers(it=fake()), work)


def test_calls_through_the_manager() -> None:
    async def work(it: OpenedServers) -> None:
        manager = DefaultToolManager(tuple(it.tools.values()))
        calls = [ToolCall(str(n), "echo", "", {"text": str(n)}) for n in range(50)]
        results = await manager.invoke([*calls, ToolCall("x", "echo", "", {"text": 7})], it.context)
        assert [result.content for result in results[:-1]] == [str(n) for n in range(50)]
        assert results[-1].fault is FaultKind.POLICY
        await manager.close()

    opened(servers(it=fake()), work)


def test_large_and_odd_texts_come_through() -> None:
    async def work(it: OpenedServers) -> None:
        for text in ("x" * 3_000_000, "line\nline\r\n\u2028\x00", "naïve 数 🌍", '{"jsonrpc": "2.0"}'):
            assert await it.call("echo", text=text) == text

    opened(servers(it=fake()), work)


def test_text_on_stdout_and_much_on_stderr_do_no_harm() -> None:
    assert answer(servers(it=fake("--chatty")), "echo", text="heard") == "heard"


def test_the_environment_is_the_servers_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HUB_TOKEN", "ours")
    monkeypatch.setenv("LEVEL", "3")

    async def work(it: OpenedServers) -> None:
        assert await it.call("environment", name="LEVEL") == "level 3"
        assert await it.call("environment", name="HUB_TOKEN") == ""
        assert await it.call("environment", name="PATH") == os.environ["PATH"]
        assert await it.call("folder") == str(tmp_path)

    opened(servers(it=fake(env={"LEVEL": "level ${LEVEL}"}, cwd=str(tmp_path))), work)


def test_a_missing_variable_ends_the_opening_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(UsageError, match="NOT_SET"):
        answer(servers(it=fake(env={"A": "${NOT_SET}"})), "echo")


def test_servers_that_offer_the_same_names() -> None:
    async def work(it: OpenedServers) -> None:
        assert sorted(it.tools) == ["a_count", "a_echo", "b_echo"]
        assert await it.call("b_echo", text="x") == "x"

    opened(servers(a=fake("--tools", "echo,count"), b=fake("--tools", "echo")), work, taken=("count",))


def test_a_file_is_read_as_the_mapping_is(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(servers(it=fake())))
    assert answer(path, "echo", text="x") == "x"


def test_without_the_package_the_command_to_install_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rlfactory-core\[mcp\]'"):
        opened(servers(it=fake()), None)  # type: ignore[arg-type]


def test_a_source_that_was_not_opened_closes() -> None:
    asyncio.run(McpSource(servers(it=fake())).close())
