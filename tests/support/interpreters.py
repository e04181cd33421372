"""Trajectories that run code: shared by the tests of the code interpreter."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rlfactory_interpreter import code_interpreter
from tests.support.tool_calls import manage, write

from rlfactory_core.context import ToolContext
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.types import Sample, ToolResult


def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the interpreters' directories are, for a fixture; each test shows that none is left there."""
    here = tmp_path / "folders"
    here.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(here))
    yield here
    assert list(here.iterdir()) == []


def trajectory(name: str = "t") -> ToolContext:
    return ToolContext(name, Sample("s", "?"))


async def run(manager: DefaultToolManager, code: str, context: ToolContext) -> ToolResult:
    (result,) = await manager.invoke([write("code_interpreter", {"code": code})], context)
    return result


def play(*codes: str, **options: Any) -> list[ToolResult]:
    """What each piece of code gives, run one after the other in one trajectory."""

    async def work(manager: DefaultToolManager) -> list[ToolResult]:
        context = trajectory()
        try:
            return [await run(manager, code, context) for code in codes]
        finally:
            await context.end()

    results: list[ToolResult] = manage(work, code_interpreter(**options))
    return results
