"""From an empty form to a trained model, in a browser."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import colour_server
import pytest
from reporting_examples import write_run
from runs import TINY_TASK, write_lines

from rlfactory_core.reporting.folder import RunFolder

pytestmark = pytest.mark.slow


def fill_form(page: Any, plugin: str, name: str, steps: int, keys: str) -> None:
    page.goto("/new")
    page.locator("[name=plugin]").fill(plugin)
    page.locator("[name=name]").fill(name)
    page.locator("[name='key.train.steps']").fill(str(steps))
    page.locator("[name='key.train.prompts_per_step']").fill("4")
    page.locator("[name='key.eval.limit']").fill("8")
    page.locator("[name=keys]").fill(keys)


def test_start_watch_look_stop_reload_resume_compare(page: Any, expect: Callable[..., Any], ui: Any) -> None:
    pytest.importorskip("torch", reason="the embedded engine needs rlfactory-core[local]")
    other = RunFolder.create("search", ui.runs / "other")
    other.write_config({"plugin": "search", "engine": "local", "seed": 3, "train": {"steps": 60, "lr": 0.5}})
    write_run(other)

    # Its steps mostly wait for their tool, so that they take no processor from the page and from other tests.
    fill_form(page, TINY_TASK, "first", 100_000, "train.group_size=2 task.waits=0.5")
    page.locator("[name=plugin]").press("Tab")
    expect(page.locator("#options")).to_contain_text("of the task")
    expect(page.locator("#preview pre").first).to_contain_text(f"rlfactory run --plugin {TINY_TASK}")
    expect(page.locator("#preview pre").first).to_contain_text("train.prompts_per_step=4")
    page.get_by_role("button", name="Start").click()

    page.locator("[data-live]").wait_for()  # the page of a run whose folder exists
    page.evaluate("window.sameDocument = true")
    page.locator("[data-live] svg").first.wait_for()
    before = page.locator("[data-version]").get_attribute("data-version")
    expect(page.locator("[data-version]")).not_to_have_attribute("data-version", before)
    assert page.evaluate("window.sameDocument")  # curves came and grew without a reload
    expect(page.locator(".state").first).to_have_text("running")

    page.get_by_role("link", name="Trajectories").click()
    page.locator("a[data-item]").first.click()
    expect(page.get_by_role("heading", name="As tokens")).to_be_visible()

    page.goto("/runs/first")
    page.reload()
    expect(page.locator(".state").first).to_have_text("running")
    page.get_by_role("button", name="Stop after this step").click()
    expect(page.locator(".state").first).to_have_text("stopped")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".state").first).to_have_text("running")
    stopped_at = int(page.locator(".facts dd").nth(5).inner_text().split()[0])
    expect(page.locator(".facts dd").nth(5)).not_to_have_text(f"{stopped_at} of 100000")
    page.get_by_role("button", name="Stop now").click()
    expect(page.locator(".state").first).not_to_have_text("running")

    page.goto("/")
    for name in ("first", "other"):
        page.get_by_label(f"compare {name}").check()
    page.get_by_role("button", name="Compare the marked runs").click()
    expect(page.get_by_role("row", name="train.lr")).to_contain_text("0.5")
    expect(page.locator(".charts svg")).not_to_have_count(0)


def test_a_server_that_does_not_start_is_named(page: Any, expect: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")
    (tmp_path / "colours").mkdir()
    works = {"command": sys.executable, "args": [str(Path(colour_server.__file__)), str(tmp_path / "colours")]}
    page.goto("/new")
    page.get_by_text("paste", exact=True).click()
    paste, use = page.locator("[name=servers]"), page.get_by_role("button", name="Use these servers")
    paste.fill(json.dumps({"mcpServers": {"colours": works, "broken": {"command": "no-such-program"}}}))
    use.click()
    expect(page.locator("[name=mcp]")).not_to_have_value("")
    lists = page.get_by_role("button", name="List the tools")
    lists.click()
    servers = page.locator("#tools > ul > li")
    expect(servers.nth(1)).to_contain_text("no-such-program")
    expect(servers.nth(0)).to_contain_text("ready 1 tool")
    expect(page.locator("#tools summary").first).to_be_visible()  # a tool of the one that works

    before = page.locator("[name=mcp]").input_value()
    paste.fill(json.dumps({"mcpServers": {"colours": works}}))
    use.click()
    expect(page.locator("[name=mcp]")).not_to_have_value(before)
    lists.click()
    expect(servers).to_have_count(1)
    expect(servers).to_contain_text("ready")
    page.locator("#tools summary").first.click()
    page.locator("#tools [name^='argument.']").first.fill("Bale")
    page.get_by_role("button", name="Try a call").first.click()
    expect(page.locator("#call-1")).to_contain_text("ms ·")
    page.goto("/")
    expect(page.get_by_text("There are no runs yet")).to_be_visible()  # the saved servers are none


def test_a_secret_is_not_taken(page: Any, expect: Callable[..., Any], ui: Any) -> None:
    page.goto("/new")
    page.get_by_text("paste", exact=True).click()
    server = {"command": "x", "env": {"API_KEY": "sk-0123456789"}}
    page.locator("[name=servers]").fill(json.dumps({"mcpServers": {"one": server}}))
    page.get_by_role("button", name="Use these servers").click()
    expect(page.get_by_role("alert").first).to_contain_text("${NAME}")
    assert not [path for path in ui.runs.rglob("*") if path.is_file() and "sk-0123456789" in path.read_text()]


def test_data_is_chosen_in_the_browser(page: Any, expect: Callable[..., Any], tmp_path: Path) -> None:
    mine = write_lines(tmp_path / "mine.jsonl", [{"question": "Where is Ann?", "answer": "Tarn"}])
    page.goto("/new")
    page.get_by_text("files of the machine with this browser").click()
    page.locator("input[data-sets=data]").set_input_files(mine)
    expect(page.locator("[name=data]")).to_have_value(re.compile("mine.jsonl$"))
    page.get_by_role("button", name="Show the first rows").click()
    expect(page.locator("#rows")).to_contain_text("Where is Ann?")
    expect(page.locator("#preview")).to_contain_text("--data")


def test_a_mistake_keeps_the_form_and_marks_its_field(page: Any, expect: Callable[..., Any]) -> None:
    page.goto("/new")
    page.get_by_role("button", name="search", exact=True).click()
    expect(page.locator("[name='key.train.steps']")).to_have_attribute("placeholder", "120")  # the task's, not 100
    page.locator("[name='key.train.lr']").fill("-3")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#refused")).to_contain_text("train.lr: got -3")
    expect(page.locator("[aria-invalid]")).to_be_focused()
    expect(page.locator("[aria-invalid]")).to_have_value("-3")
    page.locator("[name='key.train.lr']").fill("")
    page.locator("[name=plugin]").fill("")
    # By the keyboard: the task's options go when the field is left, and the button moves under a click.
    page.get_by_role("button", name="Start").press("Enter")
    expect(page.locator("#refused")).to_contain_text("“Training data”")  # and not --data


WAITS = """
import asyncio

from rlfactory_core import Sample, Task, hookimpl


class Waits(Task):
    def samples(self, split):
        yield Sample(split, "?", "!", split=split)

    def tiny_model(self):
        raise RuntimeError("nobody gets here")

    async def open(self):
        await asyncio.Event().wait()


@hookimpl
def rlfactory_tasks(register):
    register("waits", Waits)
"""


def test_a_run_that_is_stopped_before_its_first_step_is_stopped(
    page: Any, expect: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="the embedded engine needs rlfactory-core[local]")
    task = tmp_path / "waits.py"
    task.write_text(WAITS, encoding="utf-8")
    fill_form(page, str(task), "early", 4, "")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("button", name="Stop now").click()
    expect(page.locator(".state").first).to_have_text("stopped")
    expect(page.locator("main")).to_contain_text("before its first result")
