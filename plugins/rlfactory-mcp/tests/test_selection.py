"""Which tools of the servers the model gets, and under which names."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlfactory_mcp.compat import ListedTool, Listing
from rlfactory_mcp.config import read_servers
from rlfactory_mcp.source import choose_tools, valid_name

from rlfactory_core.errors import UsageError


def choose(
    tools: dict[str, list[str]], taken: tuple[str, ...] = (), **keys: dict[str, Any]
) -> list[tuple[str, str, str]]:
    """``(name for the model, server, name for the server)`` of each tool."""
    entries = {name: {"command": "x", **keys.get(name, {})} for name in tools}
    listings = {
        name: Listing(f"{name} 1", tuple(ListedTool(tool, "", {"type": "object"}) for tool in listed))
        for name, listed in tools.items()
    }
    chosen = choose_tools(read_servers({"mcpServers": entries}), listings, taken)
    return [(tool.name, tool.server.name, tool.listed.name) for tool in chosen]


def names(*args: Any, **keys: Any) -> list[str]:
    return [name for name, _, _ in choose(*args, **keys)]


def test_names_stay_as_the_server_gives_them_and_in_its_order() -> None:
    assert names({"a": ["write", "read"], "b": ["query"]}) == ["write", "read", "query"]


def test_a_clash_between_servers_gives_both_their_servers_name() -> None:
    assert names({"a": ["read", "list"], "b": ["read"]}) == ["a_read", "list", "b_read"]


def test_a_name_that_the_task_has_already() -> None:
    assert names({"a": ["search"]}, taken=("search",)) == ["a_search"]


def test_prefixes() -> None:
    assert names({"my server": ["read"]}, **{"my server": {"prefix": True}}) == ["my_server_read"]
    assert names({"a": ["read"]}, a={"prefix": "fs"}) == ["fs_read"]
    assert names({"a": ["read"]}, a={"prefix": "fs_"}) == ["fs_read"]


def test_a_name_that_is_taken_with_its_prefix_too_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"'a_read' of MCP server 'a' has the name of another tool of the task"):
        names({"a": ["read"]}, taken=("read", "a_read"))
    with pytest.raises(UsageError, match=r"'p_read' of MCP server 'b' has the name of a tool of MCP server 'a'"):
        names({"a": ["read"], "b": ["read"]}, a={"prefix": "p"}, b={"prefix": "p"})


def test_filters_take_names_and_patterns() -> None:
    tools = {"a": ["read_file", "read_dir", "write_file", "move"]}
    assert names(tools, a={"allow": ["read_*", "move"]}) == ["read_file", "read_dir", "move"]
    assert names(tools, a={"deny": ["write*", "move"]}) == ["read_file", "read_dir"]
    assert names(tools, a={"allow": ["*_file"], "deny": ["write_file"]}) == ["read_file"]


@pytest.mark.parametrize("key", ["allow", "deny"])
def test_a_filter_that_matches_nothing_names_what_is_near(key: str) -> None:
    with pytest.raises(UsageError) as caught:
        names({"a": ["read_file", "move"]}, a={key: ["read_flie"]})
    assert f"mcpServers.a.{key}: 'read_flie'" in str(caught.value)
    assert "Did you mean 'read_file'?" in str(caught.value)


def test_names_that_differ_only_where_models_cannot_see_it() -> None:
    chosen = choose({"a": ["x.y", "x y", "z"]})
    assert len({name for name, _, _ in chosen}) == 3
    assert [tool for _, _, tool in chosen] == ["x.y", "x y", "z"]


@given(st.text(min_size=1, max_size=200))
def test_every_name_becomes_one_that_models_servers_take(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", valid_name(name))


def test_long_names_that_begin_alike_stay_apart() -> None:
    assert valid_name("a" * 70) != valid_name("a" * 71)
