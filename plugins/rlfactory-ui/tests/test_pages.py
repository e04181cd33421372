"""The pages of `rlfactory ui`, as a browser without scripts gets them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from reporting_examples import decode, finished_run, infra_fault, make_trajectory, with_images
from rlfactory_ui.access import Access
from rlfactory_ui.app import create_app
from rlfactory_ui.catalogue import Catalogue
from rlfactory_ui.pages import Site
from rlfactory_ui.routes import run as run_routes
from starlette.testclient import TestClient
from ui_pages import HOST, OWN_PAGE, refused, shown, text_of

from rlfactory_core.cache import digest
from rlfactory_core.reporting.folder import RunFolder


def test_without_a_run_the_way_to_one_is_shown(tmp_path: Path) -> None:
    access = Access(8000, frozenset({HOST}))
    browser = TestClient(create_app(tmp_path / "none-yet", access), f"http://{HOST}")
    browser.get(f"/login?token={access.link()}")
    assert "There are no runs yet. Start one" in shown(browser, "/")


def test_the_list_is_searched_and_sorted(browser: TestClient, folder: RunFolder) -> None:
    other = RunFolder.create("nl2sql", folder.path.parent / "a-second")
    other.write_config({"plugin": "nl2sql", "engine": "verl", "model": "Qwen/Qwen3-4B"})
    page = shown(browser, "/?sort=name")
    assert "2 of 2 runs" in page
    assert page.index("a-second") < page.index("first")
    assert "0.50 → 0.98" in page
    assert "finished" in page
    assert "first" not in shown(browser, "/?q=qwen verl")
    assert "No run has all of these words." in shown(browser, "/?q=qwen search")


def test_a_run_has_its_curves_and_results(browser: TestClient) -> None:
    page = browser.get("/runs/first").text
    for title in ("Held-out exact match", "Tool calls", "Throughput", "Entropy"):
        assert f"<figcaption>{title}</figcaption>" in page
    seen = text_of(page)
    assert "60 of 60" in seen
    assert "Go on for" in seen
    assert "Stop now" not in seen
    assert "plugin: search" in seen  # the configuration


def test_a_run_that_has_ended_shows_what_its_guard_found(browser: TestClient, folder: RunFolder) -> None:
    folder.write_summary({**folder.read_summary(), "warnings": ["In all 60 steps reward stayed at 0."]})
    assert "In all 60 steps reward stayed at 0." in shown(browser, "/runs/first/now")


def test_a_run_that_goes_on_says_when_it_ends_and_warns(browser: TestClient, folder: RunFolder) -> None:
    folder.write_config({"plugin": "search", "train": {"steps": 100, "prompts_per_step": 4}})
    for step in range(61, 66):
        folder.append_metrics(step, {"step_s": 2.0, "entropy": 0.5, "faults/infra": 3})
    folder.write_summary({"warnings": ["step 64: In all groups all attempts got the same reward."]})
    with folder.locked():
        page = shown(browser, "/runs/first/now")
    assert "65 of 100" in page
    assert "about" in page
    assert "Stop after this step" in page
    assert "step 64: In all groups all attempts got the same reward." in page
    assert "Each of the last 5 steps had infra faults." in page


def test_a_change_of_the_files_is_told_and_nothing_else(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_routes, "LOOK_S", 0.0)
    site = Site(Catalogue(folder.path.parent), Access(8000, frozenset()))

    async def told() -> list[str]:
        looks = 0

        async def gone() -> bool:
            nonlocal looks
            looks += 1
            if looks == 5:
                folder.append_metrics(61, {"reward": 1.0})
            return looks > 10

        request = cast(Any, SimpleNamespace(query_params={}, is_disconnected=gone))
        return [message async for message in run_routes._changes(request, site, "first")]

    messages = asyncio.run(told())
    assert len(messages) == 2
    assert all(message.startswith("event: change\n") for message in messages)


def test_trajectories_are_filtered(browser: TestClient, folder: RunFolder) -> None:
    spoilt = make_trajectory(0.0, sample="q9", faults=(infra_fault(),), answer="Oslo <b>")
    folder.write_trajectories(11, [make_trajectory(1.0, sample="q8", calls=0), spoilt], decode)
    every = shown(browser, "/runs/first/trajectories")
    assert "2 of 2 trajectories" in every
    assert "q8" in every
    assert "q9" in every
    for query in ("fault=infra", "tool=search", "reward=masked", "reward=failure", "text=Oslo <b>", "text=oslo"):
        page = shown(browser, f"/runs/first/trajectories?file=step-000011&{query}")
        assert "1 of 2 trajectories" in page, query
        assert "q9" in page, query
    assert "0 of 2" in shown(browser, "/runs/first/trajectories?file=step-000011&text=nowhere")
    assert "4 of 4" in shown(browser, "/runs/first/trajectories?file=step-000010")


def test_where_all_attempts_succeed_all_are_shown_as_successes(browser: TestClient, folder: RunFolder) -> None:
    """Rewards may be above 1, and the success score decides where there is one."""
    folder.write_trajectories(12, [make_trajectory(1.2, sample="q1"), make_trajectory(1.2, sample="q2")], decode)
    assert "2 of 2" in shown(browser, "/runs/first/trajectories?file=step-000012&reward=success")
    assert "0 of 2" in shown(browser, "/runs/first/trajectories?file=step-000012&reward=failure")


def test_a_trajectory_is_shown_as_messages_and_as_tokens(browser: TestClient) -> None:
    page = browser.get("/runs/first/trajectories/eval-after/1").text
    assert "masked from the loss" in page
    assert "The same question before training" in page
    sampled = re.findall(r'<span class="own s(\d)" title="log-prob -\d\.\d\d">', page)
    assert len(sampled) == 3  # turns; there is no tokenizer, so each is one text
    assert "Orla Finn leads Velk Works." in text_of(page)
    assert re.search(r'trajectories/eval-after/0" data-key="p"', page)
    assert re.search(r'trajectories/eval-after/1" data-key="n"', page)  # there is no later one


@pytest.fixture
def images(folder: RunFolder) -> tuple[Any, Any]:
    """The images of the run's step 11: one in the prompt, and one that a tool returned."""
    image = pytest.importorskip("rlfactory_vision").Image
    pillow = pytest.importorskip("PIL.Image")
    asked, returned = (image.of(pillow.new("RGB", size, "teal")) for size in ((30, 20), (6, 8)))
    seen = with_images(make_trajectory(0.0, sample="q8"), str(asked), str(returned))
    folder.write_trajectories(11, [seen], decode)
    return asked, returned


def test_the_images_of_a_trajectory_are_shown_with_their_sizes(browser: TestClient, images: tuple[Any, Any]) -> None:
    page = browser.get("/runs/first/trajectories/step-000011/0").text
    found = re.findall(r'<img src="(/runs/first/images/\w+\.png)" width="(\d+)" height="(\d+)"', page)
    asked, returned = (f"/runs/first/images/{image.digest}.png" for image in images)
    assert found == [(asked, "30", "20"), (returned, "6", "8")]
    assert re.search("30 . 20 pixels", text_of(page))
    answer = browser.get(returned)
    assert answer.content == images[1].read()
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert f"/images/{images[1].digest}" in browser.get("/runs/first/trajectories/step-000011/attempts?sample=q8").text


def test_only_images_that_the_run_has_kept_are_served(
    browser: TestClient, folder: RunFolder, images: tuple[Any, Any], tmp_path: Path
) -> None:
    asked, returned = images
    script = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    other = digest([script])[:12]
    (folder.images / f"{other}.png").write_bytes(script)  # its name is right, and it is no PNG file
    (folder.images / f"{asked.digest}.png").write_bytes(returned.read())  # a PNG file of another name
    outside = tmp_path / "outside.png"
    outside.write_bytes(returned.read())
    (folder.images / f"{returned.digest}.png").unlink()
    (folder.images / f"{returned.digest}.png").symlink_to(outside)
    for name in (other, asked.digest, returned.digest, "0" * 12, "..%2f..%2fsummary"):
        answer = browser.get(f"/runs/first/images/{name}.png")
        assert answer.status_code in (404, 422), name
        assert answer.headers["content-type"].startswith("text/html"), name


def test_an_image_that_was_not_kept_is_its_name(
    browser: TestClient, folder: RunFolder, images: tuple[Any, Any]
) -> None:
    for path in folder.images.iterdir():
        path.unlink()
    page = browser.get("/runs/first/trajectories/step-000011/0").text
    assert "<img" not in page
    assert str(images[1]) in text_of(page)


def test_a_conversation_shows_the_images_that_it_names(
    browser: TestClient, folder: RunFolder, images: tuple[Any, Any]
) -> None:
    for path in folder.images.iterdir():
        path.unlink()  # those of a conversation are in no trajectory
    asked, returned = map(str, images)
    result = {"name": "look", "content": returned, "latency_s": 0.01, "cached": False, "fault": None}
    turn = {"text": "", "content": "I look.", "reasoning": "", "calls": [], "edited": False, "results": [result]}
    play = {"model": "m", "sample": "q8", "samples": ["q8"], "own": False, "answer": None, "stop": None}
    play |= {"prompt": [{"role": "user", "content": asked}], "turns": [turn], "verdicts": {}}
    (folder.path / "play.json").write_text(json.dumps(play))
    page = browser.get("/runs/first/play").text
    found = re.findall(r'<img src="(/runs/first/images/\w+\.png)"', page)
    assert found == [f"/runs/first/images/{image.digest}.png" for image in images]
    assert browser.get(found[1]).content == images[1].read()


def test_the_advantage_of_a_trajectorys_tokens_has_a_colour_and_a_number(browser: TestClient) -> None:
    seen = {}
    for number in range(4):
        page = browser.get(f"/runs/first/trajectories/step-000010/{number}").text
        (label,) = re.findall(r"advantage: (.*)<", page)
        (seen[label],) = re.findall(r'<pre class="tokens (\w+)">', page)
    assert seen == {
        "-1.16, made less likely": "down3",
        "-0.39, made less likely": "down1",
        "+0.39, made likelier": "up1",
        "+1.16, made likelier": "up3",
    }
    assert "advantage:" not in browser.get("/runs/first/trajectories/eval-after/0").text


def test_characters_that_cannot_be_seen_are_shown(browser: TestClient, folder: RunFolder) -> None:
    """ANSI, a text that runs backwards, half a surrogate pair; in a field they stay what they are."""
    text = "\x1b[31mred\x1b[0m \u202egnorts\u202c \ud83d"
    folder.write_trajectories(11, [make_trajectory(sample="q\u202e8", answer=text)], decode)
    page = browser.get("/runs/first/trajectories/step-000011/0").text
    assert text_of(page).count(r"\x1b[31mred\x1b[0m \u202egnorts\u202c \ud83d") >= 2  # as messages and as tokens
    assert not re.search("[\x1b\u202a-\u202e]", page)
    browser.post("/runs/first/notes", data={"tags": "", "note": "\u200eleft"}, headers=OWN_PAGE)
    assert '<textarea name="note" rows="2">\u200eleft</textarea>' in browser.get("/runs/first").text


def test_the_attempts_of_a_group_are_beside_each_other(browser: TestClient) -> None:
    page = shown(browser, "/runs/first/trajectories/step-000010/attempts?sample=q1")
    assert "4 attempts at q1" in page
    assert "advantage -1.16" in page
    assert "advantage +1.16" in page
    assert "the same as the first" in page


def test_runs_are_compared(browser: TestClient, folder: RunFolder) -> None:
    other = RunFolder(finished_run(folder.path.parent / "made").path.rename(folder.path.parent / "second"))
    other.write_config({"plugin": "search", "engine": "local", "seed": 1, "train": {"lr": 0.001}})
    page = browser.get("/compare?run=first&run=second").text
    assert page.count("<figure") >= 5
    seen = text_of(page)
    assert "seed 0 1" in seen
    assert "train.lr none 0.001" in seen
    assert "The same question after training" in seen
    assert "run before after first 0.500 0.985 second 0.500 0.985" in seen
    assert "held-out questions differ" not in seen

    path = other.trajectory_file("eval-after")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows[0]["sample"]["prompt"] = "Another question under the id of the first?"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    seen = text_of(browser.get("/compare?run=first&run=second").text)
    assert "The held-out questions differ (first 1, second 2; 1 in all runs)." in seen
    rows[0]["sample"] = rows[1]["sample"] = {**rows[1]["sample"], "answer": "another"}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert "1 shared question with other accepted answers" in text_of(browser.get("/compare?run=first&run=second").text)
    assert "after, shared questions" in seen
    assert "Another question" not in seen.split("The same question after training")[1]
    assert "There is no run 'third'" in text_of(browser.get("/compare?run=third").text)


def test_tags_and_notes_are_saved_with_the_run(browser: TestClient, folder: RunFolder) -> None:
    fields = {"tags": "paper, good", "note": "the <best> one"}
    page = browser.post("/runs/first/notes", data=fields, headers=OWN_PAGE).text
    assert 'value="paper good"' in page
    assert "the &lt;best&gt; one" in page
    assert "paper" in shown(browser, "/?q=best")
    assert json.loads((folder.path / "ui.json").read_text())["tags"] == ["paper", "good"]


def test_a_run_is_deleted_only_by_its_name(browser: TestClient, folder: RunFolder) -> None:
    answer = browser.post("/runs/first/delete", data={"confirm": "frist"}, headers=OWN_PAGE)
    assert answer.status_code == 422
    assert "Nothing was deleted" in answer.text
    assert folder.config.exists()
    assert (
        "There are no runs yet" in browser.post("/runs/first/delete", data={"confirm": "first"}, headers=OWN_PAGE).text
    )
    assert not folder.path.exists()


def test_what_cannot_be_shown_is_said(browser: TestClient, folder: RunFolder) -> None:
    assert "There is no run 'nowhere'" in text_of(browser.get("/runs/nowhere").text)
    assert "no trajectories called 'metrics'" in text_of(browser.get("/runs/first/trajectories/metrics/0").text)
    folder.trajectory_file(12).write_text('{"format": 1}\n')
    page = browser.get("/runs/first/trajectories?file=step-000012")
    assert page.status_code == 422
    assert "line 1: not a trajectory" in text_of(page.text)
    assert "does not run on this machine" in refused(browser, "/runs/first/stop", when="step")


@pytest.mark.slow
def test_what_the_plugins_of_a_run_show(browser: TestClient) -> None:
    assert "show nothing of their own" in shown(browser, "/runs/first/plugins")
    assert "show nothing of their own" in shown(browser, "/runs/first/trajectories/eval-after/1/plugins")
    assert "has 2 trajectories" in text_of(browser.get("/runs/first/trajectories/eval-after/9/plugins").text)


SHOWN = """
from rlfactory_core import Task, hookimpl
from rlfactory_core.reporting import ReportSection


class Nothing(Task):
    def samples(self, split):
        return []


@hookimpl
def rlfactory_tasks(register):
    register("shown", Nothing)


@hookimpl
def rlfactory_report_sections(register):
    register("steps", lambda run: ReportSection.of_table("Steps", ("<i>",), [(str(len(run.metrics)),)]))


@hookimpl
def rlfactory_trajectory_sections(register):
    def answer(played, config):
        return ReportSection.of_table("Answer", ("said",), [(played.turns[-1].message.content,)])

    register("answer", answer)
"""


@pytest.mark.slow  # it starts commands
def test_a_plugin_shows_its_own_of_a_run_and_of_a_trajectory(browser: TestClient, folder: RunFolder) -> None:
    plugin = folder.path.parent / "shown.py"
    plugin.write_text(SHOWN)
    folder.write_config({"plugin": str(plugin), "engine": "local", "seed": 0})
    folder.write_trajectories(11, [make_trajectory(answer="<script>x</script>")], decode)
    page = browser.get("/runs/first/plugins").text
    assert "<h2>Steps</h2>" in page
    assert "<th>60</th>" in page
    assert "<th>&lt;i&gt;</th>" in page
    page = browser.get("/runs/first/trajectories/step-000011/0/plugins").text
    assert "<h2>Answer</h2>" in page
    assert "&lt;script&gt;x&lt;/script&gt;" in page
    assert "<script>" not in page


@pytest.mark.parametrize(("ended", "more"), [({}, []), ({"by": "until", "text": ""}, ["train.until="])])
def test_a_run_that_has_learnt_goes_on_when_it_is_told_to(
    browser: TestClient, folder: RunFolder, monkeypatch: pytest.MonkeyPatch, ended: dict[str, str], more: list[str]
) -> None:
    folder.write_summary({**folder.read_summary(), **({"ended": ended} if ended else {})})
    steps = Catalogue(folder.path.parent).entry(folder).steps
    asked: list[list[str]] = []

    def start(_runs: Path, _name: str, words: list[str]) -> SimpleNamespace:
        asked.append(words)
        return SimpleNamespace(alive=False)

    monkeypatch.setattr(run_routes.processes, "start", start)
    browser.post(f"/runs/{folder.name}/resume", data={"more": "30"}, headers=OWN_PAGE, follow_redirects=False)
    assert asked == [["run", "--resume", str(folder.path), "--steps", str(steps + 30), *more]]
