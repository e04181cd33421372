"""How other programs write their MCP servers, in our keys.

Claude, VS Code, Cursor, Windsurf, Cline, Roo, Gemini CLI, Qwen Code, LibreChat, Zed, Continue, Codex, Cherry Studio,
opencode and Qwen-Agent write the same servers with other keys. What means the same is read; what would change what a
server does, and cannot be done here, is refused with what to write; only what has no effect here is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rlfactory_core.errors import ConfigError

EXAMPLE = '{"mcpServers": {"NAME": {"command": "PROGRAM", "args": []}}}'

_OUTER = {"mcpservers", "servers", "contextservers"}  # in lower case, without underscores and what is before a dot
_SAME = {
    **dict.fromkeys(("serverUrl", "server_url", "httpUrl", "baseUrl", "endpoint", "uri"), "url"),
    **dict.fromkeys(("includeTools", "include_tools", "enabledTools", "enabled_tools", "allowedTools"), "allow"),
    **dict.fromkeys(("allowed_tools", "tools"), "allow"),
    **dict.fromkeys(("excludeTools", "exclude_tools", "disabledTools", "disabled_tools"), "deny"),
    **dict.fromkeys(("environment", "envs"), "env"),
    **dict.fromkeys(("workingDirectory", "working_directory"), "cwd"),
    "cmd": "command", "http_headers": "headers", "transport": "type", "transportType": "type",
    "tool_timeout_sec": "timeout", "startup_timeout_sec": "start_timeout",
}  # fmt: skip
_OPPOSITE = ("enabled", "isActive", "active")  # of `disabled`
_MILLISECONDS = {"initTimeout": "start_timeout", "connectionTimeout": "start_timeout"}
_WITHOUT_EFFECT = {
    "$schema", "chatMenu", "description", "dev", "displayName", "extensionName", "faviconUrl", "gallery", "icon",
    "iconPath", "iconUrl", "id", "installSource", "key", "logoUrl", "longRunning", "metadata", "name", "provider",
    "providerUrl", "reference", "registryUrl", "remoteConfigured", "searchKey", "source", "sourceFile",
    "startup", "stderr", "tags", "title", "trust", "version", "watchPaths",
}  # fmt: skip
_APPROVAL = "nobody is asked before a call here, and all tools are offered; 'allow' names those to offer"
_HINTED = {
    **dict.fromkeys(("alwaysAllow", "autoApprove", "always_allow", "auto_approve"), _APPROVAL),
    **dict.fromkeys(("sseReadTimeout", "sse_read_timeout"), "a stream may be silent here; 'timeout' is for a call"),
    "serverInstructions": "the model is not shown a server's instructions; write them into the prompt (--system)",
}
_TOKEN = 'nobody signs in here; write a token: "headers": {"Authorization": "Bearer ${TOKEN}"}'
_REFUSED = {
    **dict.fromkeys(
        ("auth", "authentication", "authProviderType", "oauth", "oauthScopes", "oauth_headers", "oauth_scopes",
         "requiresOAuth", "apiKey", "headersHelper", "bearer_token_env_var", "env_http_headers"), _TOKEN),
    **dict.fromkeys(
        ("envFile", "env_file", "envfile", "env_vars"),
        'no file of variables is read; set them before the start and write "env": {"NAME": "${NAME}"}'),
    **dict.fromkeys(("customUserVars", "inputs"), 'nobody is asked here; set a variable and write "${NAME}"'),
    "requestOptions": "write 'headers', and 'timeout' in seconds",
    "proxy": "set HTTPS_PROXY before the start",
    **dict.fromkeys(("sandbox", "sandboxEnabled"), "a server is not confined here; confine it in its 'command'"),
    **dict.fromkeys(("tcp", "ws_url"), "a server has a 'command', or a 'url' over HTTP"),
    "settings": "settings of an extension are not read; write 'args' or 'env'",
}  # fmt: skip
_BOOL: TypeAdapter[bool] = TypeAdapter(bool)  # also of "true", "yes", 1
_OFF: tuple[Any, ...] = (False, "", [], {})
_TYPES = {"stdio": "stdio", "local": "stdio", "http": "http", "streamablehttp": "http", "sse": "sse", "remote": None}
_PLACES = {"command", "url", *(key for key, ours in _SAME.items() if ours in ("command", "url"))}
_DURATIONS = ("timeout", "start_timeout", "ping_timeout")
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h)?\s*")
_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
_ASKED_FROM_S = 1000.0  # a bare number from here on is meant as milliseconds more often than not


@dataclass(frozen=True, slots=True)
class Entry:
    """One server of a file."""

    name: str
    at: str  # where it is in the file, for messages
    data: Mapping[str, Any]  # in the file's own keys


def entries(part: Mapping[str, Any], place: str) -> Iterator[Entry]:
    """The servers in a mapping: under the outer key of any program, or without one.

    Raises:
        ConfigError: there are none, or in two places.
    """
    held = dict(_held(part))
    filled = {key: value for key, value in held.items() if value}
    if len(filled) > 1:
        raise ConfigError(f"{place} has MCP servers under {' and '.join(map(repr, filled))}; leave one of them out.")
    outer, servers = next(iter((filled or held).items()), ("", None))
    if servers is None:
        servers = _bare(part, place)
    if isinstance(servers, list):
        servers = dict(_named(outer, item) for item in servers)
    if not isinstance(servers, Mapping):
        raise ConfigError(f"{place}: {outer!r} is {servers!r:.80}; expected servers by name, as {EXAMPLE}.")
    _refuse_lists(part, place, servers)
    for name, data in servers.items():
        at = f"{outer}.{name}" if outer else str(name)
        if not isinstance(data, Mapping):
            raise ConfigError(f"{at}: got {data!r:.80}, expected keys such as 'command' or 'url'.")
        yield Entry(str(name), at, data)


def is_disabled(entry: Entry) -> bool:
    """Whether the server is left out; its other keys may then be anything."""
    meant: dict[str, bool] = {}
    for key in ("disabled", *_OPPOSITE):
        if (said := entry.data.get(key)) is not None:
            try:
                meant[key] = _BOOL.validate_python(said) is (key == "disabled")
            except ValidationError:
                raise ConfigError(f"{entry.at}.{key}: got {said!r:.80}, expected true or false.") from None
    if len(set(meant.values())) > 1:
        raise ConfigError(f"{entry.at}: {' and '.join(map(repr, meant))} contradict each other; leave one out.")
    return any(meant.values())


def in_our_keys(entry: Entry) -> tuple[Mapping[str, Any], Sequence[str]]:
    """The server's keys as `config.ServerSection` has them; unknown ones stay. And what has no effect here, in words.

    Raises:
        ConfigError: a key that cannot be followed here, or two that differ and mean the same.
    """
    data: dict[str, Any] = {}
    names: dict[str, str] = {}  # in the file, of our keys
    hints: list[str] = []
    for theirs, value in _flat(entry):
        if value is None or theirs in _WITHOUT_EFFECT or theirs in ("disabled", *_OPPOSITE):
            continue
        at = f"{entry.at}.{theirs}"
        if theirs in _HINTED:
            hints += [f"{at} has no effect: {_HINTED[theirs]}."] if value not in _OFF else []
            continue
        if theirs in _REFUSED:
            if value in _OFF:
                continue
            raise ConfigError(f"{at} cannot be followed: {_REFUSED[theirs]}.")
        ours = _MILLISECONDS.get(theirs) or _SAME.get(theirs, theirs)
        meant = _converted(at, theirs, ours, value)
        if meant is None:
            continue
        if data.setdefault(ours, meant) != meant:
            raise ConfigError(f"{entry.at}: {names[ours]!r} and {theirs!r} mean {ours!r}, and differ; leave one out.")
        names[ours] = theirs
    if "httpUrl" in entry.data:
        data.setdefault("type", "http")
    return data, hints


def _held(part: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values under the outer keys of all programs."""
    for key, value in part.items():
        if str(key).rpartition(".")[2].lower().replace("_", "") in _OUTER:
            yield str(key), value
        elif key == "mcp" and isinstance(value, Mapping):
            if _are_servers(value):  # opencode
                yield "mcp", value
            else:
                yield from ((f"mcp.{inner}", servers) for inner, servers in _held(value))


def _bare(part: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """The servers of a file without the outer key, or one server that has its name within."""
    servers = {key: value for key, value in part.items() if key not in ("$schema", "inputs")}
    if _are_servers(servers):
        return servers
    if _is_server(part):
        if isinstance(part.get("name"), str):
            return {part["name"]: part}
        raise ConfigError(f"{place} holds one MCP server without a name; write {EXAMPLE}.")
    got = ", ".join(map(repr, list(part)[:5])) or "nothing"
    raise ConfigError(f"{place} has no 'mcpServers' with servers by name, as {EXAMPLE}; it has {got}.")


def _is_server(value: object) -> bool:
    return isinstance(value, Mapping) and not _PLACES.isdisjoint(value)


def _are_servers(value: Mapping[str, Any]) -> bool:
    return bool(value) and all(map(_is_server, value.values()))


def _named(outer: str, item: object) -> tuple[str, object]:
    if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
        raise ConfigError(f"{outer}: a server in a list needs a 'name'; got {item!r:.80}.")
    return item["name"], item


def _refuse_lists(part: Mapping[str, Any], place: str, servers: Mapping[str, Any]) -> None:
    """Some files list beside the servers which of them are left out."""
    beside = [*part.items(), *(part["mcp"].items() if isinstance(part.get("mcp"), Mapping) else ())]
    for key, value in beside:
        if isinstance(value, list) and re.fullmatch(r"(disabled|excluded)\w*|allowed", str(key)):
            off = [name for name in servers if (name in value) is not (key == "allowed")]
            if off:
                raise ConfigError(f'{place}: {key!r} is not read; write "disabled": true in {", ".join(off)}.')


def _flat(entry: Entry) -> Iterator[tuple[str, Any]]:
    """The keys, those of a nested transport included, and a command that is a list as command and arguments."""
    for key, value in entry.data.items():
        if key in ("command", "transport") and isinstance(value, Mapping):
            yield from (("command" if inner == "path" else inner, item) for inner, item in value.items())
        elif key == "command" and isinstance(value, list) and value:
            yield "command", value[0]
            if len(value) > 1:
                yield "args", value[1:]
        else:
            yield key, value


def _converted(at: str, theirs: str, ours: str, value: Any) -> Any:
    if ours in _DURATIONS:
        return _seconds(at, value, in_ms=theirs in _MILLISECONDS)
    if ours == "args" and isinstance(value, list):
        return [_text(item) for item in value]
    if ours in ("env", "headers") and isinstance(value, Mapping):
        return {key: _text(item) for key, item in value.items() if item is not None}
    if ours == "allow" and value == ["*"]:
        return None
    if ours == "type":
        return _TYPES.get(re.sub("[-_]", "", str(value)).lower(), value)
    return value


def _text(value: Any) -> Any:
    """A whole number as its text; everything else, such as true or 1.10, has no text that is certain."""
    return json.dumps(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _seconds(at: str, value: Any, *, in_ms: bool) -> Any:
    """A bare number of seconds or milliseconds, or a text with its unit; anything else is refused later."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found and found[2]:
        return float(found[1]) * _UNITS[found[2]]
    number: Any = float(found[1]) if found else repr(value) if isinstance(value, bool) else value
    if in_ms and _is_number(number):
        return number / 1000
    if _is_number(number) and number >= _ASKED_FROM_S:
        raise ConfigError(
            f"{at}: got {value}, which here is {number / 60:,.0f} minutes, because it counts seconds; most programs "
            f"count milliseconds. Write {number / 1000:g} for {number / 1000:g} seconds, or "
            f'"{value}s" if you mean that.'
        )
    return number
