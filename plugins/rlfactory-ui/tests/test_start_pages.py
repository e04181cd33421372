"""The pages of `rlfactory ui` on which a run is put together, checked and started."""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path

import pytest
from mcp_calls import fake
from starlette.testclient import TestClient
from ui_pages import OWN_PAGE, PART, refused, shown, text_of

from rlfactory_core.reporting.folder import RunFolder


@pytest.mark.slow  # it starts commands
def test_a_tasks_options_are_a_form(browser: TestClient) -> None:
    page = browser.post("/new/options", data={"plugin": "search"}, headers=PART).text
    assert 'name="key.task.top_k"' in page
    assert "<option>dense</option>" in page
    assert "Did you mean 'search' or 'serve'?" in refused(browser, "/new/options", plugin="serch")


@pytest.mark.slow  # it starts commands
def test_the_form_is_a_command_line(browser: TestClient) -> None:
    fields = {
        "plugin": "search",
        "key.task.top_k": "5",
        "key.train.steps": "7",
        "keys": "train.lr=1e-3",
        "name": "mine",
    }
    answer = browser.post("/new/preview", data={**fields, "rewards": "exact_match\nformat=0.2"}, headers=PART)
    page = text_of(answer.text)
    assert "rlfactory run --plugin search --reward exact_match --reward format=0.2" in page
    assert "task.top_k=5 train.steps=7 train.lr=1e-3 --out" in page
    assert "steps: 7" in page
    assert '"key.train.group_size": "8"' in html.unescape(answer.text)  # what an empty field means
    assert "top_k: 5" in page
    wrong = text_of(browser.post("/new/preview", data={**fields, "keys": "train.leraning_rate=1"}, headers=PART).text)
    assert "Unknown key 'train.leraning_rate'" in wrong
    assert "“Training data”" in text_of(browser.post("/new/preview", data={"name": "x"}, headers=PART).text)
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
    assert 'name="argument.search.query"' in page
    fields = {"plugin": "search", "tool": "search", "argument.search.query": "Jutin Works"}
    called = text_of(browser.post("/new/call", data=fields, headers=PART).text)
    assert " ms · " in called
    assert "fault" not in called
    wrong = text_of(browser.post("/new/call", data={**fields, "arguments.search": '{"q": 1}'}, headers=PART).text)
    assert "policy fault" in wrong


@pytest.mark.slow  # it starts commands
def test_tools_can_be_switched_off_and_limited(browser: TestClient) -> None:
    fields = {"plugin": "search", "disabled": ["", "search"], "key.tools.overrides.search.deadline_s": "7"}
    page = browser.post("/new/tools", data=fields, headers=PART).text
    assert 'name="disabled" value="search" checked' in page
    assert 'name="key.tools.overrides.search.deadline_s" value="7"' in page
    assert 'name="key.tools.overrides.search.breaker_failures" value="" placeholder="20"' in page
    command = text_of(browser.post("/new/preview", data=fields, headers=PART).text)
    assert """tools.overrides.search.deadline_s=7 'tools.disabled=["search"]'""" in command
    assert "disabled: - search" in command
    assert "tools.disabled=" not in browser.post("/new/preview", data={**fields, "disabled": ""}, headers=PART).text


@pytest.mark.slow  # it starts commands
def test_a_failing_server_hides_no_other_tools(browser: TestClient, tmp_path: Path) -> None:
    pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")
    broken = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no <key>')"]}
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"good": fake("--tools", "echo,count"), "broken": broken}}))
    fields = {"plugin": "search", "mcp": str(path), "disabled": "count"}
    at_once = browser.post("/new/tools", data=fields, headers=PART).text
    assert "good starting broken starting" in text_of(at_once)
    assert 'data-now data-posts="/new/tools" data-name="start"' in at_once
    assert '<input type="hidden" name="disabled" value="count">' in at_once
    page = browser.post("/new/tools", data={**fields, "start": "1"}, headers=PART).text
    assert "good ready 2 tools broken failed MCP server 'broken' does not start" in text_of(page)
    assert "no &lt;key&gt;" in page
    assert 'name="disabled" value="count" checked' in page
    assert 'name="disabled" value="echo">' in page
    assert "Search the corpus." in page
    assert "Cannot read the MCP configuration" in refused(browser, "/new/tools", mcp=str(tmp_path / "none.json"))


def test_an_engine_brings_its_own_fields(browser: TestClient) -> None:
    page = browser.post("/new/engine", data={"engine": "verl"}, headers=PART).text
    assert 'name="key.verl.gpus"' in page
    assert 'name="key.verl.nodes" value="" placeholder="1"' in page
    assert "<input" not in browser.post("/new/engine", data={"engine": "local"}, headers=PART).text


@pytest.mark.slow  # it starts commands
def test_whether_a_model_fits_is_said_beside_the_machine(browser: TestClient, tmp_path: Path) -> None:
    pytest.importorskip("transformers").Qwen3Config(vocab_size=1000).save_pretrained(tmp_path)
    fields = {"plugin": "search", "model": str(tmp_path), "key.rollout.max_tokens": "1024"}
    page = text_of(browser.post("/new/memory", data=fields, headers=PART).text)
    assert "It does not fit:" in page  # 6 billion parameters, all trained in fp32
    assert "parameters x 4 bytes" in page
    assert re.search(r"ok machine: \d+ cores, [\d.]+ GiB of memory", page)
    gpus = {**fields, "engine": "verl", "key.verl.gpus": "8", "key.verl.nodes": "2"}
    assert "parameters x 4 bytes / 16 GPUs" in text_of(browser.post("/new/memory", data=gpus, headers=PART).text)
    assert "Name the model" in refused(browser, "/new/memory", plugin="search")


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


@pytest.mark.slow  # it starts commands
def test_the_first_rows_of_data(browser: TestClient, tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text('{"prompt": "Who <i>?", "info": {"answer": "Ada"}}\n' * 9)
    page = browser.post("/new/data", data={"data": str(path)}, headers=PART).text
    assert page.count("Who &lt;i&gt;?") == 5
    assert '<option value="info.answer">' in page
    assert "There is no data file" in refused(browser, "/new/data", data=str(tmp_path / "none.jsonl"))
    path.write_text("nonsense\n")
    assert "line 1 is not JSON" in refused(browser, "/new/data", data=str(path))
    assert "Name a file" in refused(browser, "/new/data", data="")


@pytest.mark.slow  # it starts commands
def test_all_keys_are_in_the_form(browser: TestClient) -> None:
    page = browser.get("/new").text
    assert page.count('name="key.train.lr"') == 1  # among those that matter first
    for name in (
        "key.train.clip_high",
        "key.train.lora.rank",
        "key.rollout.slots",
        "key.tools.cache",
        "key.eval.every",
    ):
        assert f'name="{name}"' in page
    cache = page[page.index('<select name="key.rollout.context"') :]
    assert "<option>summarize</option>" in cache[: cache.index("</select>")]


@pytest.mark.slow  # it starts commands
def test_a_sample_is_shown_as_the_model_gets_it(browser: TestClient) -> None:
    page = browser.post("/new/prompt", data={"plugin": "search", "sample": "train-0/3"}, headers=PART).text
    assert "&lt;|im_start|&gt;assistant" in page
    assert re.search(r"\d+ tokens of at most 512 in a trajectory · qwen3 format · sample train-0/3", text_of(page))
    assert "rlfactory samples prompt --plugin search --sample train-0/3 --json" in text_of(page)
    assert "expected a number from 1 to 2400" in refused(browser, "/new/prompt", plugin="search", sample="nowhere")


@pytest.mark.slow  # it starts commands
def test_an_answer_is_scored_dry(browser: TestClient) -> None:
    page = text_of(browser.post("/new/score", data={"plugin": "search"}, headers=PART).text)
    assert "exact_match 1 1.0 format 1 0.1 together 1.1" in page
    wrong = {"plugin": "search", "answer": "<answer> <b>Rome</b> </answer>", "rewards": "exact_match=2\nformat"}
    answer = browser.post("/new/score", data=wrong, headers=PART).text
    assert "&lt;b&gt;Rome&lt;/b&gt;" in answer
    assert "exact_match 0 2.0 format 1 1.0 together 1" in text_of(answer)
    assert "No closing quotation" in refused(browser, "/new/score", plugin="search", keys="train.lr='1")


@pytest.mark.slow  # it starts commands
def test_a_task_is_checked(browser: TestClient) -> None:
    page = text_of(browser.post("/new/check", data={"plugin": "search"}, headers=PART).text)
    assert "pass oracle" in page
    assert "rlfactory plugins check search" in page


@pytest.mark.slow  # it starts commands
def test_a_reward_is_attacked(browser: TestClient) -> None:
    page = text_of(browser.post("/new/redteam", data={"plugin": "search"}, headers=PART).text)
    assert re.search(r"[\d.]+ % of the wrong answers are accepted, [\d.]+ % of the right ones are refused", page)
    assert re.search(r"\d+ attacks attack answers tried accepted", page)


@pytest.mark.slow  # it starts commands
def test_plugins_and_the_machine(browser: TestClient) -> None:
    assert "search" in shown(browser, "/plugins")
    assert "top_k" in shown(browser, "/plugins/search")
    assert "Python" in shown(browser, "/doctor")


@pytest.mark.slow
def test_data_of_the_browsers_machine_is_saved_beside_the_runs(browser: TestClient, folder: RunFolder) -> None:
    row = b'{"question": "Who?", "answer": "him"}\n'
    sent = browser.post("/new/files?name=mine.jsonl", content=row, headers=PART)
    assert sent.status_code == 200, sent.text
    place = Path(sent.text)
    assert place.read_bytes() == row
    assert place.is_relative_to(folder.path.parent)
    again = browser.post("/new/files?name=mine.jsonl", content=b"", headers=PART)
    assert place.read_bytes() == row  # none is overwritten
    assert again.text != sent.text
    for name in ("../mine.jsonl", "mine.py", ".jsonl", ""):
        refusal = browser.post("/new/files", params={"name": name}, content=row, headers=PART)
        assert refusal.status_code == 422
        assert "expected data as .jsonl or .parquet" in refusal.text
    assert "Who?" in browser.post("/new/data", data={"data": str(place)}, headers=PART).text
    assert shown(browser, "/").count("runs") >= 1  # what was sent is no run
