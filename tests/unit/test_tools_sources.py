"""Tools and sources of tools, opened in order and closed whatever happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

import pytest
from rlfactory_agents import agent_tool
from tool_calls import Flaky, echo

from rlfactory_core.errors import BackendError
from rlfactory_core.protocols import Tool
from rlfactory_core.tools import FunctionTool
from rlfactory_core.tools.sources import OpenTools


class Source:
    """Gives one tool by its own name, or by another where that is taken."""

    def __init__(self, name: str, log: list[str], *, starts: bool = True, stops: bool = True) -> None:
        self.name, self.log, self.starts, self.stops = name, log, starts, stops

    async def open(self, taken: Collection[str], group: str = "") -> Sequence[Tool]:
        self.log.append(f"open {self.name}")
        if not self.starts:
            raise BackendError(f"{self.name} does not start")
        name = self.name if self.name not in taken else f"{self.name}_2"
        return [FunctionTool(echo._fn, name)]

    async def close(self) -> None:
        self.log.append(f"close {self.name}")
        if not self.stops:
            raise OSError("stuck")


def names(opened: OpenTools) -> list[str]:
    return [item.spec.name for item in opened.tools]


def test_sources_are_opened_in_order_and_told_which_names_are_taken() -> None:
    log: list[str] = []

    async def work() -> None:
        opened = OpenTools()
        await opened.open([Source("echo", log), Source("a", log), echo, Source("a", log)])
        assert names(opened) == ["echo", "echo_2", "a", "a_2"]  # plain tools keep their names, and stand first
        await opened.open([Source("b", log), Source("a_2", log)])
        assert names(opened) == ["echo", "echo_2", "a", "a_2", "b", "a_2_2"]
        await opened.close()
        await opened.close()

    asyncio.run(work())
    assert log == [f"open {name}" for name in ("echo", "a", "a", "b", "a_2")] + [
        f"close {name}" for name in ("a_2", "b", "a", "a", "echo")
    ]


@pytest.mark.slow
def test_sources_are_told_the_group_of_processes_they_are_opened_in() -> None:
    class Shared(Source):
        async def open(self, taken: Collection[str], group: str = "") -> Sequence[Tool]:
            self.log.append(group)
            return await super().open(taken, group)

    async def work() -> None:
        opened = OpenTools("run 7")
        agent = agent_tool("boss", "http://127.0.0.1:9", "toy", [Shared("b", log)])
        await opened.open([Shared("a", log)])
        with pytest.raises(BackendError, match="boss"):
            await opened.open([agent])  # its model's server is down; its tools were opened before
        await opened.close()

    log: list[str] = []
    asyncio.run(work())
    assert log.count("run 7") == 2


def test_a_source_that_cannot_start_is_closed_with_those_before_it() -> None:
    log: list[str] = []

    async def work() -> None:
        opened = OpenTools()
        with pytest.raises(BackendError, match="second does not start"):
            await opened.open([Source("first", log), Source("second", log, starts=False), Source("third", log)])
        await opened.close()

    asyncio.run(work())
    assert log == ["open first", "open second", "close second", "close first"]


def test_a_source_that_cannot_be_closed_does_not_keep_the_others(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []

    async def work() -> None:
        opened = OpenTools()
        await opened.open([Source("first", log), Source("second", log, stops=False)])
        await opened.close()

    asyncio.run(work())
    assert log[2:] == ["close second", "close first"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "did not close" in caplog.text


def test_what_is_neither_is_passed_on_and_a_tool_with_an_open_of_its_own_is_a_tool() -> None:
    class Openable(Flaky):
        async def open(self, taken: Collection[str], group: str = "") -> Sequence[Tool]:
            raise AssertionError("nobody opens a tool")

    async def work() -> None:
        opened, openable = OpenTools(), Openable(0)
        await opened.open([openable, "neither"])
        assert opened.tools == (openable, "neither")
        await opened.close()

    asyncio.run(work())
