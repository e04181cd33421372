"""The processes of `rlfactory play` behind the page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fake_openai import serve
from rlfactory_ui.commands import STATE, Commands, kept_conversation
from talked_task import oracle, run_of_it

from rlfactory_core.errors import UsageError


@pytest.mark.slow
def test_the_page_keeps_a_process_and_what_was_said(tmp_path: Path) -> None:
    """A second server, after the first one has ended, shows the same and goes on."""
    run = run_of_it(tmp_path, "run")

    async def talk(*orders: dict[str, Any]) -> list[dict[str, Any]]:
        commands = Commands()
        try:
            return [await commands.play(run, ["--api", server.url], each) for each in orders]
        finally:
            await commands.close()

    with serve(oracle) as server:
        (_, last) = asyncio.run(talk({"do": "step"}, {"do": "step"}))
        assert last["stop"] == "final_answer"
        assert kept_conversation(run) is not None
        (again,) = asyncio.run(talk({"do": "show"}))
        assert [turn["text"] for turn in again["turns"]] == [turn["text"] for turn in last["turns"]]
        assert again["reward"] == 1.0
    with pytest.raises(UsageError, match=r"127\.0\.0\.1"):
        asyncio.run(talk({"do": "show"}))
    (run / STATE).write_text("damaged", encoding="utf-8")
    assert kept_conversation(run) is None
