"""Which MCP servers a configuration names: every form that users already have, and every way to get it wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlfactory_mcp.config import ServerConfig, expand, read_servers
from rlfactory_mcp.source import McpSource

from rlfactory_core.errors import ConfigError, UsageError

TIME = {"command": "uvx", "args": ["mcp-server-time"]}


def one(**keys: Any) -> ServerConfig:
    (server,) = read_servers({"mcpServers": {"it": keys}})
    return server


def test_the_file_of_claude_desktop(tmp_path: Path) -> None:
    path = tmp_path / "claude_desktop_config.json"
    files = {"command": "npx", "args": ["-y", "server-filesystem", "/data"], "env": {"LEVEL": "1"}}
    path.write_text(json.dumps({"globalShortcut": "", "mcpServers": {"files": files, "time": TIME}}))
    first, second = read_servers(path)
    assert (first.name, first.kind, first.command) == ("files", "stdio", "npx")
    assert first.args == ("-y", "server-filesystem", "/data")
    assert dict(first.env) == {"LEVEL": "1"}
    assert second == read_servers(str(path))[1]


def test_the_list_of_rl_factory_is_a_python_literal(tmp_path: Path) -> None:
    path = tmp_path / "mcp_tools.pydata"
    path.write_text(
        "\n[\n    {'mcpServers': {\n        'search': {'command': 'python3', 'args': ['search.py']},\n    }}\n]"
    )
    (server,) = read_servers(path)
    assert (server.name, server.command, server.args) == ("search", "python3", ("search.py",))


def test_a_literal_is_never_executed(tmp_path: Path) -> None:
    path, trace = tmp_path / "tools.pydata", tmp_path / "trace"
    path.write_text(f"[open({str(trace)!r}, 'w')]")
    with pytest.raises(ConfigError, match="is not a Python literal"):
        read_servers(path)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("keys", "transport"),
    [
        ({"url": "http://h/mcp"}, "auto"),
        ({"url": "http://h/sse", "type": "sse"}, "sse"),
        ({"url": "http://h/mcp", "type": "http"}, "http"),
        ({"url": "http://h/mcp", "type": "streamable-http"}, "http"),
        ({"url": "http://h/mcp", "transport": "streamable_http"}, "http"),
        ({"url": "http://h/mcp", "type": "streamableHttp"}, "http"),
        ({"command": "x", "type": "stdio"}, "stdio"),
    ],
)
def test_transports(keys: dict[str, Any], transport: str) -> None:
    assert one(**keys).kind == transport


def test_a_list_of_server_maps() -> None:
    names = [s.name for s in read_servers([{"mcpServers": {"a": TIME}}, {"mcpServers": {"b": TIME}}])]
    assert names == ["a", "b"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ([{"mcpServers": {"a": TIME}}, "code_interpreter"], ["entry 1", "'code_interpreter'", "mcpServers"]),
        ([{"mcpServers": {"a": TIME}}, {"mcpServers": {"a": TIME}}], ["two MCP servers named 'a'"]),
        ({"mcpServer": {}}, ["has no 'mcpServers'", "it has 'mcpServer'"]),
        ({"mcpServers": {}}, ["names no MCP server"]),
        ({"mcpServers": {"a": {**TIME, "disabled": True}}}, ["names no MCP server that is not disabled"]),
        ({"mcpServers": {"a": "uvx"}}, ["mcpServers.a", "'uvx'"]),
        ({"mcpServers": {"a": {**TIME, "comand": "x"}}}, ["'mcpServers.a.comand'", "'mcpServers.a.command'"]),
        ({"mcpServers": {"a": {"args": []}}}, ["mcpServers.a", "neither of 'command' and 'url'"]),
        ({"mcpServers": {"a": {**TIME, "url": "http://h"}}}, ["both of 'command' and 'url'"]),
        ({"mcpServers": {"a": {**TIME, "type": "sse"}}}, ["has the type stdio", "'sse'"]),
        ({"mcpServers": {"a": {"url": "http://h", "type": "stdio"}}}, ["needs a 'command'"]),
        ({"mcpServers": {"a": {"url": "http://h", "type": "grpc"}}}, ["mcpServers.a.type", "'grpc'"]),
        (
            {"mcpServers": {"a": {"url": "http://h", "type": "sse", "transport": "http"}}},
            ["'type' and 'transport' mean", "differ"],
        ),
        ({"mcpServers": {"a": {"url": "http://h", "env": {"A": "b"}}}}, ["'env' is for a server with a 'command'"]),
        ({"mcpServers": {"a": {**TIME, "headers": {"A": "b"}}}}, ["'headers' is for a server with a 'url'"]),
        ({"mcpServers": {"a": {**TIME, "timeout": 0}}}, ["mcpServers.a.timeout", "greater than 0"]),
        ({"mcpServers": {"a": TIME}, "servers": {"b": TIME}}, ["under 'mcpServers' and 'servers'"]),
        (TIME, ["one MCP server without a name", "NAME"]),
        ({"mcp": {"excluded": ["a"]}, "mcpServers": {"a": TIME}}, ["'excluded' is not read", '"disabled": true in a']),
        (
            {"mcpServers": {"a": {**TIME, "replicas": 2, "session": "trajectory"}}},
            ["'replicas' is for session: shared"],
        ),
        ("{}", ["Cannot read"]),
        (7, ["holds a int"]),
    ],
)
def test_mistakes_are_said_in_words(config: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        McpSource(config)
    for word in words:
        assert word in str(caught.value)


def test_a_file_that_is_not_json(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{mcpServers: ")
    with pytest.raises(ConfigError, match=r"mcp\.json is not JSON"):
        read_servers(path)


def test_it_goes_over_a_pipe() -> None:
    server = one(**TIME, allow=["a*"], env={"A": "b"}, prefix=True, timeout=3)
    assert ServerConfig.model_validate(json.loads(json.dumps(server.model_dump(mode="json")))) == server


def test_variables_are_put_in_everywhere() -> None:
    server = one(
        command="${BIN}", args=["--at", "${HOST:-localhost}:${env:PORT}"], env={"KEY": "x-${KEY}"}, cwd="${DIR}"
    )
    given = {"BIN": "uvx", "PORT": "80", "KEY": "0123456789", "DIR": "/data", "HOST": ""}
    full = expand(server, given)
    assert (full.command, full.args, full.env, full.cwd) == (
        "uvx",
        ("--at", "localhost:80"),
        {"KEY": "x-0123456789"},
        "/data",
    )
    remote = expand(
        one(url="http://${HOST}/mcp", headers={"Authorization": "Bearer ${KEY}"}), {"HOST": "h", "KEY": "k"}
    )
    assert (remote.url, remote.headers) == ("http://h/mcp", {"Authorization": "Bearer k"})


def test_a_missing_variable_is_named_with_its_server_and_key() -> None:
    server = one(command="x", env={"TOKEN": "${SEARCH_TOKEN}"}, args=["${FOLDER}"])
    with pytest.raises(UsageError) as caught:
        expand(server, {})
    for words in ("'it'", "env.TOKEN", "SEARCH_TOKEN", "args[0]", "FOLDER", "${FOLDER:-default}"):
        assert words in str(caught.value)


def test_secrets_are_not_shown() -> None:
    server = one(command="x", env={"TOKEN": "literal-secret"}, args=["--key", "${KEY}"])
    full = expand(server, {"KEY": "from-the-environment"})
    assert "secret" not in repr(server) + repr(full) + str(full)
    assert "environment" not in repr(full)
    assert full.redact("used literal-secret and from-the-environment") == "used *** and ***"
    remote = expand(one(url="http://h/mcp?token=query-secret"), {})
    assert "query-secret" not in repr(remote) + remote.redact("GET http://h/mcp?token=query-secret")
