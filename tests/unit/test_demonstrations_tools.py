"""The tools in the demonstrations of a task that says how it is solved: those of sources and of servers."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import colour_server
import pytest
from recipes import made, shown
from stock_task import Stock, count

from rlfactory_core import Message, Sample, Task
from rlfactory_core.protocols import Tool
from rlfactory_core.tasks.demonstrations import recipe_of
from rlfactory_core.tasks.setup import TaskSetup
from rlfactory_core.tiny import answer_text, call
from rlfactory_core.tools.sources import NamedSource, ToolSourceFactoryTraits


class Source:
    """Tools that are known only once it is open."""

    closed = 0

    async def open(self, taken: Collection[str], group: str = "") -> Sequence[Tool]:
        return Stock.tools

    async def close(self) -> None:
        type(self).closed += 1


def test_tools_of_a_source_are_shown_too() -> None:
    class Sourced(Stock):
        tools = [Source()]

    recipe = made(Sourced())
    assert recipe.tools is not None
    assert [spec.name for spec in recipe.tools] == ["count"]
    assert any("Count what is in the shop" in text for text in recipe.vocabulary())
    assert Source.closed == 1


def test_tools_of_a_server_are_shown_too(tmp_path: Path) -> None:
    pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")
    from rlfactory_mcp.source import McpSource

    server = {"command": sys.executable, "args": [colour_server.__file__, str(tmp_path)]}

    class Colours(Task):
        tools = [McpSource({"mcpServers": {"colours": server}})]

        def samples(self, split: str) -> list[Sample]:
            return [
                Sample(thing, f"What colour is {thing}?", colour) for thing, colour in colour_server.COLOURS.items()
            ]

        def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
            if messages[-1].role == "tool":
                return Message("assistant", answer_text(sample.answer))
            return Message("assistant", "", tool_calls=(call("search", query=sample.id),))

    recipe = made(Colours())
    assert recipe.tools is not None
    assert [spec.name for spec in recipe.tools] == ["search"]
    assert {found.content for _, _, found, _ in shown(recipe, 0)} <= {f"1: {c}" for c in colour_server.COLOURS.values()}


def test_the_tools_of_servers_are_called_too() -> None:
    class Servers:
        async def open(self, taken: Collection[str], group: str = "") -> Sequence[Tool]:
            return [count]

        async def close(self) -> None: ...

    class Bare(Stock):
        tools = ()

    source = NamedSource("servers", {}, lambda given: Servers(), ToolSourceFactoryTraits())
    recipe = recipe_of(TaskSetup(Bare(), sources=[source]), code="v1")
    assert recipe is not None
    assert [each.name for each in recipe.tools or ()] == ["count"]
    assert shown(recipe, 0, 1)[0][1].tool_calls[0].name == "count"
