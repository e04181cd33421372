"""The pages of `rlfactory ui`, as a browser without scripts gets them."""

from __future__ import annotations

import asyncio
import html
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from reporting_examples import decode, finished_run, infra_fault, make_trajectory

pytest.importorskip("starlette", reason="needs rlfactory-core[ui]")
from starlette.testclient import TestClient

from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.web.access import Access
from rlfactory_core.web.app import create_app
from rlfactory_core.web.catalogue import Catalogue
from rlfactory_core.web.pages import Site
from rlfactory_core.web.routes import run as run_routes

HOST = "127.0.0.1:8000"
OWN_PAGE = {"origin": f"http://{HOST}"}
PART = {**OWN_PAGE, "x-part": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A finished run called ``first``."""
    folder = RunFolder(finished_run(tmp_path / "made").path.rename(tmp_path / "first"))
    (tmp_path / "made").rmdir()
    return folder


@pytest.fixture
def browser(folder: RunFolder) -> TestClient:
    access = Access(8000, frozenset({HOST}))
    browser = TestClient(create_app(folder.path.parent, access), f"http://{HOST}")
    browser.get(f"/login?token={access.link()}")
    return browser


def text_of(page: str) -> str:
    """What a reader sees, on one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def shown(browser: TestClient, path: str) -> str:
    answer = browser.get(path)
    assert answer.status_code == 200, answer.text
    return text_of(answer.text)


def refused(browser: TestClient, path: str, **fields: str) -> str:
    answer = browser.post(path, data=fields, headers=PART)
    assert answer.status_code == 422, answer.text
    return answer.text


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


def test_a_run_that_goes_on_says_when_it_ends_and_warns(browser: TestClient, folder: RunFolder) -> None:
    folder.write_config({"plugin": "search", "train": {"steps": 100, "prompts_per_step": 4}})
    for step in range(61, 66):
        folder.append_metrics(step, {"step_s": 2.0, "equal_groups": 4, "entropy": 0.5, "faults/infra": 3})
    with folder.locked():
        page = shown(browser, "/runs/first/now")
    assert "65 of 100" in page
    assert "about" in page
    assert "Stop after this step" in page
    assert "all attempts of each group got the same reward" in page
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
    for query in ("fault=infra", "tool=search", "reward=masked", "reward=low", "text=Oslo <b>", "text=oslo"):
        page = shown(browser, f"/runs/first/trajectories?file=step-000011&{query}")
        assert "1 of 2 trajectories" in page, query
        assert "q9" in page, query
    assert "0 of 2" in shown(browser, "/runs/first/trajectories?file=step-000011&text=nowhere")
    assert "4 of 4" in shown(browser, "/runs/first/trajectories?file=step-000010")


def test_a_trajectory_is_shown_as_messages_and_as_tokens(browser: TestClient) -> None:
    page = browser.get("/runs/first/trajectories/eval-after/1").text
    assert "masked from the loss" in page
    assert "The same question before training" in page
    sampled = re.findall(r'<span class="own s(\d)" title="log-prob -\d\.\d\d">', page)
    assert len(sampled) == 3  # turns; there is no tokenizer, so each is one text
    assert "Orla Finn leads Velk Works." in text_of(page)
    assert "q0" in browser.get("/runs/first/trajectories/eval-after/1/previous").text
    assert "2 of 2" in shown(browser, "/runs/first/trajectories/eval-after/1/next")


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


@pytest.mark.slow  # it starts commands
def test_a_tasks_options_are_a_form(browser: TestClient) -> None:
    page = browser.post("/new/options", data={"plugin": "search"}, headers=PART).text
    assert 'name="key.task.top_k"' in page
    assert "<option>dense</option>" in page
    assert "Did you mean 'search'?" in refused(browser, "/new/options", plugin="serch")


@pytest.mark.slow  # it starts commands
def test_the_form_is_a_command_line(browser: TestClient) -> None:
    fields = {
        "plugin": "search",
        "key.task.top_k": "5",
        "key.train.steps": "7",
        "keys": "train.lr=1e-3",
        "name": "mine",
    }
    page = text_of(
        browser.post("/new/preview", data={**fields, "rewards": "exact_match\nformat=0.2"}, headers=PART).text
    )
    assert "rlfactory run --plugin search --reward exact_match --reward format=0.2" in page
    assert "task.top_k=5 train.steps=7 train.lr=1e-3 --out" in page
    assert "steps: 7" in page
    assert "top_k: 5" in page
    wrong = text_of(browser.post("/new/preview", data={**fields, "keys": "train.leraning_rate=1"}, headers=PART).text)
    assert "Unknown key 'train.leraning_rate'" in wrong
    assert "expected the name of a new folder" in refused(browser, "/new/preview", plugin="search", name="../x")
    assert "expected the name of a new folder" in refused(browser, "/new/preview", plugin="search", name="first")


@pytest.mark.slow  # it starts commands
def test_what_is_refused_is_not_started(browser: TestClient, folder: RunFolder) -> None:
    answer = browser.post("/new", data={"plugin": "search", "keys": "train.steps=-1", "name": "bad"}, headers=OWN_PAGE)
    assert answer.status_code == 422
    assert "train.steps" in text_of(answer.text)
    assert [path.name for path in folder.path.parent.iterdir()] == ["first"]


@pytest.mark.slow  # it starts commands
def test_tools_are_listed_and_tried(browser: TestClient) -> None:
    page = browser.post("/new/tools", data={"plugin": "search"}, headers=PART).text
    assert "Search the corpus." in page
    assert 'name="arguments.search"' in page
    fields = {"plugin": "search", "tool": "search", "arguments.search": '{"query": "Jutin Works"}'}
    called = text_of(browser.post("/new/call", data=fields, headers=PART).text)
    assert " ms · " in called
    assert "fault" not in called
    wrong = text_of(browser.post("/new/call", data={**fields, "arguments.search": '{"q": 1}'}, headers=PART).text)
    assert "policy fault" in wrong


def test_pasted_servers_are_saved_without_secrets(browser: TestClient, folder: RunFolder) -> None:
    servers = {"clock": {"command": "python", "args": ["clock.py"], "env": {"API_KEY": "${CLOCK_KEY}"}}}
    path = browser.post("/new/servers", data={"servers": json.dumps({"mcpServers": servers})}, headers=PART).text
    assert json.loads(Path(path).read_text())["mcpServers"] == servers
    servers["clock"]["env"] = {"API_KEY": "sk-1234"}
    answer = refused(browser, "/new/servers", servers=json.dumps({"mcpServers": servers}))
    assert "env.API_KEY looks like a secret" in answer
    assert not any("sk-1234" in file.read_text() for file in folder.path.parent.rglob("*.json"))
    assert "are not JSON" in refused(browser, "/new/servers", servers="{")
    assert 'expected JSON with "mcpServers"' in refused(browser, "/new/servers", servers="[1, 2]")


def test_the_first_rows_of_data(browser: TestClient, tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text('{"prompt": "Who <i>?", "info": {"answer": "Ada"}}\n' * 9)
    page = browser.post("/new/data", data={"data": str(path)}, headers=PART).text
    assert page.count("Who &lt;i&gt;?") == 5
    assert '<option value="info.answer">' in page
    assert "cannot be read: No such file" in refused(browser, "/new/data", data=str(tmp_path / "none.jsonl"))
    path.write_text("nonsense\n")
    assert "not all JSON" in refused(browser, "/new/data", data=str(path))


@pytest.mark.slow  # it starts commands
def test_a_task_is_checked(browser: TestClient) -> None:
    page = text_of(browser.post("/new/checks/check", data={"plugin": "search"}, headers=PART).text)
    assert "pass oracle" in page
    assert "rlfactory plugins check search" in page


@pytest.mark.slow  # it starts commands
def test_plugins_and_the_machine(browser: TestClient) -> None:
    assert "search" in shown(browser, "/plugins")
    assert "top_k" in shown(browser, "/plugins/search")
    assert "Python" in shown(browser, "/doctor")


@pytest.mark.slow
def test_what_the_plugins_of_a_run_show(browser: TestClient) -> None:
    assert "show nothing of their own" in shown(browser, "/runs/first/plugins")
