"""Pages of runs that are there already: by keys, on a phone, in the dark, for a screen reader, with hostile texts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from reporting_examples import decode, make_trajectory, with_images, write_run
from talked_task import kept_conversation

from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import number_text
from rlfactory_core.types import Message, Sample, ToolResult, Trajectory
from rlfactory_core.utils.display import printable

pytestmark = pytest.mark.slow

PAGES = (
    "/",
    "/runs/one",
    "/runs/one/play",
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
        folder = made_run(ui.runs, name)
        (folder.path / "play.json").write_text(kept_conversation("What is it?", "a lemon"), encoding="utf-8")


@pytest.mark.usefixtures("two_runs")
def test_a_page_without_the_cookie_is_refused_and_a_link_opens_one_browser(
    browser: Any, ui: Any, expect: Callable[..., Any]
) -> None:
    first, second, third = browser(), browser(), browser()
    assert first.goto("/").status == 401
    assert first.goto(ui.link).status == 200
    assert second.goto(ui.link).status == 401  # the link was used
    first.get_by_role("button", name="Open in another browser").click()
    link = first.locator("pre").inner_text()
    assert third.goto(link).status == 200
    assert second.goto(link).status == 401
    third.get_by_role("link", name="one").click()
    expect(third).to_have_title(re.compile("^one"))


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
def test_a_name_that_leads_here_is_refused(browser: Any, ui: Any) -> None:
    """DNS rebinding: to the browser, a page of that name and this server are one origin."""
    port = urlsplit(ui.address).port
    page = browser()
    page.goto(ui.link)
    for path in ("/", ui.link.removeprefix(ui.address), "/runs/one", "/static/ui.js"):
        answer = page.goto(f"http://rebound.example:{port}{path}")
        assert answer.status == 421
        assert "rebound.example" in page.inner_text("body")
        assert "one" not in page.inner_text("body").replace("rebound.example", "").split()
    status = page.evaluate("() => fetch('/runs/one/delete', {method: 'POST', body: 'confirm=one'}).then(a => a.status)")
    assert status == 421
    browser.problems[:] = [each for each in browser.problems if "untrustworthy" not in each]  # the name has no TLS
    assert (ui.runs / "one" / "config.yaml").exists()


CURVES = """() => Object.fromEntries([...document.querySelectorAll("figure.chart")].map(figure => [
    figure.querySelector("figcaption").textContent,
    {lines: JSON.parse(figure.querySelector("svg").dataset.lines),
     drawn: [...figure.querySelectorAll("path.line")].map(path => path.getAttribute("d"))}]))"""


@pytest.mark.usefixtures("two_runs")
def test_the_points_of_a_curve_are_the_metrics(page: Any, ui: Any) -> None:
    page.goto("/runs/one")
    curves = page.evaluate(CURVES)
    for title, metric in (("Entropy", "entropy"), ("Reward", "reward"), ("Loss", "loss")):
        is_drawn(curves[title], metric, ui.runs / "one")


def is_drawn(curve: dict[str, Any], metric: str, run: Path) -> None:
    rows = [row for row in RunFolder(run).read_metrics() if row[metric] is not None]
    (line,) = curve["lines"]
    assert [point[2] for point in line["points"]] == [row["step"] for row in rows]
    assert [point[3] for point in line["points"]] == [number_text(row[metric]) for row in rows]
    drawn = [[float(number) for number in place.split(",")] for place in curve["drawn"][0][1:].split("L")]
    assert drawn == [[x, y] for x, y, *_ in line["points"]]
    # Places are linear in step and value: the ends and the extremes say how.
    (left, *_), (right, *_) = line["points"][0], line["points"][-1]
    lowest, highest = (pick(range(len(rows)), key=lambda at: rows[at][metric]) for pick in (min, max))
    bottom, top = line["points"][lowest][1], line["points"][highest][1]
    span, steps = rows[highest][metric] - rows[lowest][metric], rows[-1]["step"] - rows[0]["step"]
    for row, (x, y, *_) in zip(rows, line["points"], strict=True):
        assert x == pytest.approx(left + (right - left) * (row["step"] - rows[0]["step"]) / steps, abs=0.11)
        assert y == pytest.approx(bottom + (top - bottom) * (row[metric] - rows[lowest][metric]) / span, abs=0.11)
    assert left < right
    assert top < bottom - 50


def test_an_image_that_a_tool_returned_is_seen(browser: Any, ui: Any) -> None:
    image = pytest.importorskip("rlfactory_vision").Image
    pillow = pytest.importorskip("PIL.Image")
    asked, returned = (image.of(pillow.new("RGB", size, "teal")) for size in ((900, 60), (6, 8)))
    folder = made_run(ui.runs, "one")
    folder.write_trajectories(61, [with_images(make_trajectory(), str(asked), str(returned))], decode)
    phone = browser(viewport={"width": 375, "height": 700})
    phone.goto(ui.link)
    phone.goto("/runs/one/trajectories/step-000061/0")
    phone.wait_for_load_state("networkidle")
    drawn = phone.evaluate(
        "[...document.querySelectorAll('main img')].map(i => [i.complete, i.naturalWidth, i.naturalHeight, i.alt])"
    )
    assert drawn == [
        [True, 900, 60, f"image {asked.digest}"],
        [True, 6, 8, f"image {returned.digest}"],
    ]
    assert re.search("6 . 8 pixels", phone.inner_text("main"))
    assert phone.evaluate("document.documentElement.scrollWidth") <= 375


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
    page.get_by_role("heading", name="Runs").or_(page.get_by_role("alert")).first.wait_for()
    assert page.get_by_role("alert").all_inner_texts() == []
    assert not (ui.runs / "one").exists()
    assert (ui.runs / "two").exists()


@pytest.mark.usefixtures("two_runs")
def test_keys_alone(page: Any, expect: Callable[..., Any]) -> None:
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("one")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("q=one"))
    page.wait_for_load_state()
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

    def arrived(place: str) -> None:
        """The next key is read by the script of the page, which runs after its text is there."""
        expect(page.locator("nav .note")).to_have_text(place)
        page.wait_for_load_state()

    arrived("2 of 4")
    page.keyboard.press("n")
    arrived("3 of 4")
    page.keyboard.press("p")
    arrived("2 of 4")


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


# The ratio of text to ground (WCAG 2), with the ground as the browser paints it.
CONTRAST = """() => {
    const canvas = document.createElement("canvas"), pen = canvas.getContext("2d", {willReadFrequently: true});
    const light = (...colours) => {
        for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
        const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map(byte => byte / 255)
            .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
    };
    const own = document.querySelector(".tokens .own"), around = getComputedStyle(own.closest("pre"));
    const style = getComputedStyle(own), ground = light(around.backgroundColor, style.backgroundColor);
    const text = light(style.color);
    return {ground: style.backgroundColor, ratio: Math.max(ground, text) / Math.min(ground, text)};
}"""


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tokens_can_be_read_on_the_colours_of_log_prob_and_advantage(browser: Any, scheme: str) -> None:
    page = browser(color_scheme=scheme)
    page.goto(browser.ui.link)
    page.goto("/runs/one/trajectories/step-000010/1")
    grounds = {}
    for shade in ("s0", "s1", "s2", "s3", "s4"):
        page.locator(".tokens .own").first.evaluate("(own, shade) => { own.className = `own ${shade}`; }", shade)
        grounds[shade] = page.evaluate(CONTRAST)
    page.get_by_label("advantage: -0.39, made less likely").check()
    for shade in ("up1", "up2", "up3", "down1", "down2", "down3"):
        page.locator(".tokens").evaluate("(pre, shade) => { pre.className = `tokens ${shade}`; }", shade)
        grounds[shade] = page.evaluate(CONTRAST)
    assert len({found["ground"] for found in grounds.values()}) == 11
    assert {shade: found for shade, found in grounds.items() if found["ratio"] < 4.5} == {}


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
    (folder.path / "play.json").write_text(kept_conversation(*HOSTILE), encoding="utf-8")
    (ui.runs / ".launches").mkdir()
    (ui.runs / ".launches" / f"{name}.log").write_text("\n".join(HOSTILE))
    return name


def test_hostile_texts_stay_texts(page: Any, hostile_run: str) -> None:
    quoted = quote(hostile_run)
    page.goto(f"/runs/{quoted}")
    page.locator("[name=tags]").fill(" ".join(HOSTILE))
    page.locator("[name=note]").fill("\n".join(HOSTILE))
    with page.expect_navigation():
        page.get_by_role("button", name="Save").click()
    base = f"/runs/{quoted}/trajectories"
    paths = [
        "/",
        f"/?q={quote(HOSTILE[1])}",
        f"/runs/{quoted}",
        f"/runs/{quoted}/play",
        base,
        f"/compare?run={quoted}&run={quoted}",
    ]
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


def test_a_hostile_text_is_what_is_displayed(page: Any, hostile_run: str) -> None:
    for number, text in enumerate(HOSTILE):
        page.goto(f"/runs/{quote(hostile_run)}/trajectories/step-000060/{number}")
        assert page.get_by_role("heading", level=1).inner_text() == printable(text)
        said = page.locator(".bubble.model p:not(.think)").all_inner_texts()
        heard = page.locator(".bubble.tool p").all_inner_texts()
        assert {*said, *heard} == {printable(text)}
        assert printable(text) in page.locator("pre.tokens").inner_text()
        assert not re.search("[\x1b\u202a-\u202e]", page.content())


def test_a_hostile_configuration_is_what_compare_displays(page: Any, ui: Any, hostile_run: str) -> None:
    other = made_run(ui.runs, "two", plugin=HOSTILE[4], task=dict.fromkeys(HOSTILE[:4], HOSTILE[1]))
    page.goto(f"/compare?run={quote(hostile_run)}&run={other.name}")
    cells = [row.split("\t") for row in page.locator("table.list tbody tr").all_inner_texts()]
    shown = {key.strip(): values for key, *values in cells}
    assert shown["plugin"] == [HOSTILE[0], printable(HOSTILE[4])]
    for key in HOSTILE[:4]:
        assert shown[f"task.{key}"] == [HOSTILE[0], HOSTILE[1]]
    assert page.locator("table").last.locator("thead th").all_inner_texts() == ["key", hostile_run, "two"]
    assert page.evaluate("window.hit") is None


@pytest.mark.parametrize(
    "path", ["/runs/..%2f..", "/runs/%2e%2e/now", "/runs/one/trajectories/..%2f..%2fconfig/0", "/static/..%2faccess.py"]
)
@pytest.mark.usefixtures("two_runs")
def test_no_path_leads_out(page: Any, path: str) -> None:
    assert page.goto(path).status in (404, 422)
