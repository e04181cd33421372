"""MCP configurations as other programs write them: read as they are meant, or refused with what to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlfactory_mcp.config import ServerConfig, expand, read_servers
from rlfactory_mcp.source import check_servers

from rlfactory_core.errors import ConfigError, UsageError

TIME = {"command": "uvx", "args": ["mcp-server-time"]}
TEXT = json.dumps({"mcpServers": {"time": TIME}})


def one(**keys: Any) -> ServerConfig:
    (server,) = read_servers({"mcpServers": {"it": keys}})
    return server


@pytest.mark.parametrize(
    "config",
    [
        {"servers": {"time": TIME}, "inputs": []},  # VS Code
        {"mcp": {"servers": {"time": TIME}}, "editor.fontSize": 12},
        {"mcp.servers": {"time": TIME}},
        {"mcpServers": {}, "servers": {"time": TIME}},
        {"context_servers": {"time": {"source": "custom", "enabled": True, **TIME}}},  # Zed
        {"context_servers": {"time": {"command": {"path": "uvx", "args": ["mcp-server-time"], "env": None}}}},
        {"mcp": {"time": {"type": "local", "command": ["uvx", "mcp-server-time"]}}},  # opencode
        {"mcpServers": [{"name": "time", **TIME}]},  # Continue
        {"mcpServers": {"time": {"transport": {"type": "stdio", **TIME}}}},
        {"time": TIME},  # without the outer key
        [{"name": "time", **TIME}],
    ],
)
def test_where_programs_keep_their_servers(config: Any) -> None:
    (server,) = read_servers(config)
    assert (server.name, server.kind, server.command, server.args) == ("time", "stdio", "uvx", ("mcp-server-time",))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("mcp.json", b"\xef\xbb\xbf" + TEXT.encode()),
        ("mcp.json", TEXT.encode("utf-16")),
        (
            "mcp.json",
            b'{\n // ours\n"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time",]} /* one */}, }',
        ),
        ("librechat.yaml", b"mcpServers:\n  time:\n    command: uvx\n    args: [mcp-server-time]\n"),
        ("config.toml", b'[mcp_servers.time]\ncommand = "uvx"\nargs = ["mcp-server-time"]\n'),
    ],
)
def test_files_as_programs_write_them(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert read_servers(path) == read_servers({"mcpServers": {"time": TIME}})


def test_a_server_that_is_given_twice_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    for end in ("", ","):
        path.write_text(f'{{"mcpServers": {{"a": {{"command": "x"}}, "a": {{"command": "y"}}{end}}}}}')
        with pytest.raises(ConfigError, match="the key 'a' is given twice"):
            read_servers(path)


@pytest.mark.parametrize(
    ("keys", "runs"),
    [({"disabled": word}, False) for word in (True, "true", "True", 1, "yes", "on")]
    + [({"disabled": word}, True) for word in (False, "false", 0, "no", None)]
    + [({"isActive": False}, False), ({"enabled": "false"}, False), ({"enabled": True}, True)],
)
def test_which_servers_are_left_out(keys: dict[str, Any], runs: bool) -> None:
    names = [server.name for server in read_servers({"mcpServers": {"time": TIME, "other": {"command": "x", **keys}}})]
    assert names == (["time", "other"] if runs else ["time"])


def test_keys_that_mean_the_same() -> None:
    assert one(**TIME, includeTools=["a"], disabledTools=["b"]).model_dump(include={"allow", "deny"}) == {
        "allow": ("a",),
        "deny": ("b",),
    }
    assert (one(serverUrl="http://h").url, one(httpUrl="http://h").kind) == ("http://h", "http")
    assert one(type="remote", url="http://h", tools=["*"]).kind == "auto"
    assert dict(one(command="x", environment={"PORT": 80, "NONE": None}).env) == {"PORT": "80"}
    assert one(command="x", args=["--port", 80]).args == ("--port", "80")
    assert one(**TIME, initTimeout=20_000, timeout="1800s").model_dump(include={"timeout", "start_timeout"}) == {
        "timeout": 1800.0,
        "start_timeout": 20.0,
    }
    assert one(**TIME, initTimeout="20000").start_timeout == one(**TIME, initTimeout="20s").start_timeout == 20.0
    assert one(**TIME, icon="x", watchPaths=["y"], requiresOAuth=False, oauth={}) == one(**TIME)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"timeout": 60000}, ["it.timeout: got 60000", "1,000 minutes", "milliseconds", "Write 60", '"60000s"']),
        ({"timeout": "60000"}, ["Write 60"]),
        ({"start_timeout": 30000}, ["it.start_timeout", "Write 30"]),
        ({"timeout": True}, ["it.timeout", "a valid number"]),
        ({"initTimeout": True}, ["it.start_timeout", "a valid number"]),
        ({"disabled": "maybe"}, ["it.disabled", "'maybe'", "true or false"]),
        ({"disabled": True, "enabled": True}, ["'disabled' and 'enabled' contradict"]),
        ({"envFile": ".env"}, ["it.envFile", '"env": {"NAME": "${NAME}"}']),
        ({"requiresOAuth": True}, ["it.requiresOAuth", '"headers"', "${TOKEN}"]),
        ({"includeTools": ["a"], "allow": ["b"]}, ["mean 'allow', and differ"]),
        ({"type": "websocket"}, ["it.type", "'websocket'"]),
        ({"env": {"VERSION": 1.10}}, ["it.env.VERSION", "1.1", "string"]),
        ({"args": ["-v", 1.5]}, ["it.args", "1.5", "string"]),
        ({"env": {"DEBUG": True}}, ["it.env.DEBUG", "True", "string"]),
        ({"surprise": 1}, ["Unknown key 'mcpServers.it.surprise'"]),
    ],
)
def test_keys_that_are_asked_about(keys: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        one(**{**TIME, **keys})
    for word in words:
        assert word in str(caught.value)


def test_a_key_without_effect_is_said_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    check_servers({"servers": {"time": {**TIME, "alwaysAllow": ["now"]}}})
    assert "servers.time.alwaysAllow has no effect" in caplog.text
    assert "'allow' names those to offer" in caplog.text


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ("${input:api-key}", "${API_KEY}"),
        ("${command:pick.one}", "${PICK_ONE}"),
        ("$HOME/data", "${HOME}"),
        ("Bearer $TOKEN", "${TOKEN}"),
        ("$lower", "${LOWER}"),  # a variable that is set
        ("${{ secrets.TOKEN }}", "${TOKEN}"),
        ("{{LIBRECHAT_USER_ID}}", "${LIBRECHAT_USER_ID}"),
        ("%APPDATA%", "${APPDATA}"),
        ("${NAME-default}", "${NAME}"),
        ("${HOME", "${HOME}"),
        ("${NAME:-${HOME}}", "${NAME}"),
        ("{env:HOME}", "${HOME}"),
        ("$env:TOKEN", "${TOKEN}"),
        ("$(cat token)", "${CAT_TOKEN}"),
        ("Bearer <YOUR_TOKEN>", "${YOUR_TOKEN}"),
        ("your-api-key", "${YOUR_API_KEY}"),
        ("${workspaceFolder}", "Write the folder"),
    ],
)
def test_a_placeholder_that_nothing_fills_in(text: str, write: str) -> None:
    with pytest.raises(UsageError) as caught:
        expand(one(**TIME, env={"KEY": text}), {"lower": "x", "HOME": "/h"})
    assert "'it': env.KEY" in str(caught.value)
    assert write in str(caught.value)


def test_texts_with_signs_that_are_no_placeholders() -> None:
    texts = ["pa$word", "$(?!x)", "pa$$w0rd", "^a$", "$1", "100%", "{{", "<a> <b>", "${NAME:-$HOME}", "${WITH}"]
    server = expand(one(command="x", args=texts), {"HOME": "/h", "WITH": "${input:x}"})
    assert server.args == (*texts[:-2], "$HOME", "${input:x}")
    call = ["-c", "exec server ${ROOT%/} $HOME $(date)"]
    for script in (one(command="/bin/sh", args=call), one(command="/usr/bin/env", args=["bash", *call])):
        assert expand(script, {}).args == script.args
    assert expand(one(command="x", cwd="${userHome}${/}a"), {"HOME": "/h"}).cwd == "/h/a"
