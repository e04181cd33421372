"""Talk to a model behind a server: step, change a turn, save it, reload."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fake_openai import serve
from talked_task import oracle, run_of_it

pytestmark = pytest.mark.slow


def test_a_turn_is_changed_and_the_conversation_saved(page: Any, expect: Callable[..., Any], ui: Any) -> None:
    folder = run_of_it(ui.runs, "talked")
    with serve(oracle) as server:
        page.goto("/runs/talked/play")
        page.get_by_text("another model").click()
        page.locator("[name=api]").fill(server.url)
        page.get_by_role("button", name="Begin with a held-out question").click()
        expect(page.locator(".chat")).to_contain_text("Where is Ann?")
        page.get_by_role("button", name="Next turn").click()
        expect(page.locator(".chat")).to_contain_text("Ann is in Tarn")
        page.get_by_text("change it, or go back").click()
        turn = page.get_by_label("Turn 1 as the model would write it")
        turn.fill(turn.input_value().replace("Ann", "Ben"))
        page.get_by_role("button", name="Go on from this text").click()
        expect(page.locator(".chat")).to_contain_text("changed by you")
        expect(page.locator(".chat")).to_contain_text("Ben is in Tarn")
        page.get_by_role("button", name="To the end").click()
        expect(page.locator(".chat footer")).to_contain_text("exact match 1.000")
        page.get_by_role("button", name="Save as a demonstration").click()
        expect(page.get_by_role("status")).to_contain_text("Saved")
    line = json.loads((folder / "demonstrations.jsonl").read_text(encoding="utf-8"))
    assert line["messages"][1]["tool_calls"][0]["function"] == {"name": "find", "arguments": {"name": "Ben"}}
    page.reload()
    expect(page.locator(".chat")).to_contain_text("Ben is in Tarn")
