"""Pages of runs that are there already: by keys, on a phone, in the dark, for a screen reader, with hostile texts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from reporting_examples import decode, make_trajectory, write_run

from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.types import Message, Sample, ToolResult, Trajectory

pytestmark = pytest.mark.slow

PAGES = (
    "/",
    "/runs/one",
    "/runs/one/trajectories",
    "/runs/one/trajectories/step-000010/1",
    "/runs/one/trajectories/step-000010/attempts?sample=q1",
    "/compare?run=one&run=two",
    "/new",
    "/plugins",
    "/plugins/search",
    "/doctor",
)
HOSTILE = (
    "<script>window.hit = 1</script>",
    '"><img src=x onerror="window.hit = 2">',
    "</pre></textarea></script><svg onload=window.hit=3>",
    "[look](javascript:window.hit=4) javascript:window.hit=5",
    "\x1b[31mred\x1b]8;;https://evil.example\x07 \u202egnorts\u202c {{ 7*7 }}",
)


def made_run(runs: Path, name: str, **facts: object) -> RunFolder:
    folder = RunFolder.create("search", runs / name)
    folder.write_config({"plugin": "search", "engine": "local", "seed": 3, "train": {"steps": 60}, **facts})
    write_run(folder)
    return folder


@pytest.fixture
def two_runs(ui: Any) -> None:
    for name in ("one", "two"):
        made_run(ui.runs, name)


@pytest.mark.usefixtures("two_runs")
def test_a_page_without_the_cookie_is_refused_and_a_link_opens_one_browser(browser: Any, ui: Any) -> None:
    first, second, third = browser(), browser(), browser()
    assert first.goto("/").status == 401
    assert first.goto(ui.link).status == 200
    assert second.goto(ui.link).status == 401  # the link was used
    first.get_by_role("button", name="Open in another browser").click()
    link = first.locator("pre").inner_text()
    assert third.goto(link).status == 200
    assert second.goto(link).status == 401
    third.get_by_role("link", name="one").click()
    assert third.title().startswith("one")


@pytest.mark.usefixtures("two_runs")
def test_another_sites_page_can_neither_start_nor_read(page: Any, ui: Any) -> None:
    """Even in the browser that has the cookie: `localhost` is another origin than `127.0.0.1`."""
    other = ui.address.replace("127.0.0.1", "localhost")
    evil = page.context.new_page()
    evil.route(f"{other}/evil", lambda route: route.fulfill(body="<p>evil</p>", content_type="text/html"))
    evil.goto(f"{other}/evil")
    read = "url => fetch(url, {credentials: 'include'}).then(answer => answer.text(), () => 'refused')"
    assert evil.evaluate(read, f"{ui.address}/") == "refused"
    send = """url => fetch(url, {method: "POST", mode: "no-cors", credentials: "include",
                                body: new URLSearchParams({confirm: "one"})}).then(() => 0, () => 0)"""
    evil.evaluate(send, f"{ui.address}/runs/one/delete")
    assert (ui.runs / "one" / "config.yaml").exists()


@pytest.mark.usefixtures("two_runs")
def test_delete_asks_for_the_name(page: Any, ui: Any) -> None:
    page.goto("/runs/one")
    page.get_by_text("Delete this run").click()
    page.locator("[name=confirm]").fill("two")
    page.get_by_role("button", name="Delete").click()
    assert "Nothing was deleted" in page.get_by_role("alert").inner_text()
    page.goto("/runs/one")
    page.get_by_text("Delete this run").click()
    page.locator("[name=confirm]").fill("one")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("heading", name="Runs").wait_for()
    assert not (ui.runs / "one").exists()
    assert (ui.runs / "two").exists()


@pytest.mark.usefixtures("two_runs")
def test_keys_alone(page: Any, expect: Callable[..., Any]) -> None:
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("one")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("q=one"))
    link = page.get_by_role("link", name="one", exact=True)
    for _ in range(30):
        page.keyboard.press("Tab")
        if link.evaluate("item => item === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="one", exact=True)).to_be_visible()

    page.goto("/runs/one/trajectories?file=step-000010")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    place = page.locator("nav .note")
    expect(place).to_have_text("2 of 4")
    page.keyboard.press("n")
    expect(place).to_have_text("3 of 4")
    page.keyboard.press("p")
    expect(place).to_have_text("2 of 4")


@pytest.mark.usefixtures("two_runs")
def test_nothing_is_wider_than_a_phone(browser: Any, ui: Any) -> None:
    phone = browser(viewport={"width": 375, "height": 700})
    phone.goto(ui.link)
    wide = {}
    for path in PAGES:
        phone.goto(path)
        wide[path] = phone.evaluate("document.documentElement.scrollWidth")
    assert {path: width for path, width in wide.items() if width > 375} == {}


@pytest.mark.usefixtures("two_runs")
def test_light_and_dark_are_two(browser: Any) -> None:
    grounds = set()
    first = browser()
    first.goto(browser.ui.link)
    for scheme in ("light", "dark"):
        first.emulate_media(color_scheme=scheme)
        first.goto("/runs/one")
        grounds.add(first.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, scheme: str) -> None:
    axe = os.environ.get("RLFACTORY_AXE")
    if not axe:
        pytest.skip("RLFACTORY_AXE names no axe.min.js; `nox -s browser` fetches one")
    page = browser(color_scheme=scheme, bypass_csp=True)  # axe is put into the page
    page.goto(browser.ui.link)
    found = []
    for path in PAGES:
        page.goto(path)
        page.add_script_tag(path=axe)
        for violation in page.evaluate("axe.run()")["violations"]:
            if violation["impact"] in ("serious", "critical"):
                nodes = violation["nodes"][:3]
                found += [(path, violation["id"], node["html"][:99], node["failureSummary"]) for node in nodes]
    assert not found, "\n".join(map(str, found))


def hostile_trajectory(text: str, attempt: int) -> Trajectory:
    """The text in each place where a sample, a model or a tool can write."""
    one = make_trajectory(attempt=attempt)
    turns = [
        replace(
            turn,
            message=replace(turn.message, content=text, reasoning=text),
            results=tuple(ToolResult(each.call_id, text, text) for each in turn.results),
            context_ids=tuple(map(ord, text)),
            sampled_ids=tuple(map(ord, text)),
            logprobs=(-0.5,) * len(text),
        )
        for turn in one.turns
    ]
    sample = Sample(text, (Message("system", text), Message("user", text)), text, {text: text}, "eval", text)
    return replace(one, sample=sample, turns=tuple(turns))


@pytest.fixture
def hostile_run(ui: Any) -> str:
    """Returns its name."""
    name = "<img src=x onerror=window.hit=6>"
    config = {"plugin": HOSTILE[0], "model": HOSTILE[1], "task": dict.fromkeys(HOSTILE[:4], HOSTILE[0])}
    folder = made_run(ui.runs, name, **config)
    folder.append_metrics(61, {key: 0.5 for text in HOSTILE[:4] for key in (text, f"reward/{text}", f"calls/{text}")})
    attempts = [hostile_trajectory(text, number) for number, text in enumerate(HOSTILE)]
    long = hostile_trajectory("<b>" + "x" * 5_000_000, len(HOSTILE))
    short = replace(long.turns[-1], context_ids=(), sampled_ids=(), logprobs=())
    attempts.append(replace(long, sample=replace(long.sample, slice="long"), turns=(short,)))
    for file in ("eval-before", "eval-after", 60):
        folder.write_trajectories(file, attempts if file == 60 else attempts[:-1], decode)
    (ui.runs / ".launches").mkdir()
    (ui.runs / ".launches" / f"{name}.log").write_text("\n".join(HOSTILE))
    return name


def test_hostile_texts_stay_texts(page: Any, hostile_run: str) -> None:
    quoted = quote(hostile_run)
    page.goto(f"/runs/{quoted}")
    page.locator("[name=tags]").fill(" ".join(HOSTILE))
    page.locator("[name=note]").fill("\n".join(HOSTILE))
    page.get_by_role("button", name="Save").click()
    base = f"/runs/{quoted}/trajectories"
    paths = ["/", f"/?q={quote(HOSTILE[1])}", f"/runs/{quoted}", base, f"/compare?run={quoted}&run={quoted}"]
    paths += [f"{base}?file=eval-after&text={quote(HOSTILE[0])}", f"/runs/{quote(HOSTILE[0], safe='')}"]
    paths += [f"{base}/step-000060/{number}" for number in range(len(HOSTILE) + 1)]
    paths += [f"{base}/step-000060/attempts?sample={quote(text)}" for text in HOSTILE]
    paths += [f"/new?from={quoted}", f"/new?plugin={quote(HOSTILE[1])}", f"/{quote(HOSTILE[0])}"]
    for path in paths:
        page.goto(path)
        assert page.evaluate("window.hit") is None, path
        assert page.locator("a[href^='javascript:'], [onerror], [onload], main script, main img").count() == 0, path
    page.goto(f"/runs/{quoted}")
    assert page.get_by_role("heading", level=1).inner_text() == hostile_run


@pytest.mark.parametrize(
    "path", ["/runs/..%2f..", "/runs/%2e%2e/now", "/runs/one/trajectories/..%2f..%2fconfig/0", "/static/..%2faccess.py"]
)
@pytest.mark.usefixtures("two_runs")
def test_no_path_leads_out(page: Any, path: str) -> None:
    assert page.goto(path).status in (404, 422)
