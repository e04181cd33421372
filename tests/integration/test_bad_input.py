"""What a user gets wrong ends with exit code 2 and a message that says what to do, never with a traceback."""

from __future__ import annotations

import json
import resource
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from runs import SEARCH_DATA, TINY_TASK, Cli, checkpoints, metrics, repeatable, summary, write_lines

from rlfactory_core.training import stopping

if TYPE_CHECKING:
    from typing import Self

SEARCH = ("run", "--plugin", "search")
QUICK = ("--steps", "2", "train.prompts_per_step=2", "train.group_size=2", "train.workers=1", "eval.limit=2")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


# --- names ------------------------------------------------------------------------------------------------------------


def test_an_unknown_plugin_is_answered_with_the_nearest(cli: Cli) -> None:
    assert "Did you mean 'search' or 'serve'?" in cli.refusal("run", "--plugin", "serch")


def test_no_plugin(cli: Cli) -> None:
    assert "--plugin search" in cli.refusal("run")


def test_a_plugin_file_that_is_not_there(cli: Cli) -> None:
    assert "my_task.py" in cli.refusal("run", "--plugin", "./my_task.py")


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("train.lrr=1e-4", "Unknown key 'train.lrr'. Did you mean 'train.lr'"),
        ("trian.lr=1e-4", "Unknown key 'trian'. Did you mean 'train'"),
        ("train.steps=many", "train.steps: got 'many', expected a valid integer"),
        ("train.group_size=1", "train.group_size: got 1, expected greater than or equal to 2"),
        ("--top-kk=3", "Unknown key 'task.top_kk'. Did you mean 'task.top_k'"),
        ("--retriever=bm26", "task.retriever: got 'bm26', expected 'bm25', 'dense' or 'http'"),
        ("--engine=locale", "Did you mean 'local'"),
        ("engine=locale", "Did you mean 'local'"),
        ("train.advantage=grp", "Did you mean 'grpo'"),
        ("rewards={exact_mach: 1.0}", "Did you mean 'exact_match'"),
        ("--logger=tensorbord", "Did you mean 'tensorboard'"),
        ("--device=gpu", "Device 'gpu' cannot be used"),
        ("train.prompts_per_step=1", "Raise the one or lower the other"),
        ("steps", "KEY=VALUE such as train.lr=3e-4"),
    ],
)
def test_a_wrong_key_or_value_is_named(cli: Cli, out: Path, argument: str, expected: str) -> None:
    message = cli.refusal(*SEARCH, "--out", out, "train.workers=2", argument)
    assert expected in message
    assert not out.exists()


def test_a_config_file_with_an_unknown_key(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("train:\n  stps: 3\n")
    assert "Did you mean 'train.steps'?" in cli.refusal(*SEARCH, "--config", file)


def test_a_config_file_that_is_not_there(cli: Cli, tmp_path: Path) -> None:
    assert "run.yaml" in cli.refusal(*SEARCH, "--config", tmp_path / "run.yaml")


def test_a_run_that_is_not_there(cli: Cli, tmp_path: Path) -> None:
    assert "no run at" in cli.refusal("run", "--resume", tmp_path / "nothing")


def test_resume_refuses_another_task(cli: Cli, tmp_path: Path) -> None:
    assert "--plugin cannot be given with it" in cli.refusal("run", "--resume", tmp_path, "--plugin", "search")


def test_a_folder_that_holds_something(cli: Cli, tmp_path: Path, search_files: Any) -> None:
    message = cli.refusal(*SEARCH, "--out", tmp_path)
    assert "is not empty. Choose another --out" in message
    assert search_files.data.exists()


# --- data -------------------------------------------------------------------------------------------------------------


def own(files: Any, out: Path, **changes: object) -> list[object]:
    """A run on a user's own data, before its model is looked at."""
    options = {"model": files.data.parent / "no-model", "data": files.data, "corpus": files.corpus, **changes}
    given = [part for name, value in options.items() if value is not None for part in (f"--{name}", value)]
    return [*SEARCH, "--out", out, *given]


def test_a_data_file_that_is_not_there(cli: Cli, search_files: Any, out: Path) -> None:
    message = cli.refusal(*own(search_files, out, data="missing.parquet"))
    assert f"There is no data file {Path('missing.parquet').absolute()}" in message
    assert not out.exists()


@pytest.mark.slow
def test_the_message_is_the_same_with_several_processes(cli: Cli, search_files: Any, out: Path) -> None:
    message = cli.refusal(*own(search_files, out, data="missing.jsonl"), "train.workers=2")
    assert f"There is no data file {Path('missing.jsonl').absolute()}" in message
    assert not out.exists()


def test_evaluation_data_that_is_not_there(cli: Cli, search_files: Any, out: Path) -> None:
    assert "/nope.jsonl." in cli.refusal(*own(search_files, out, **{"eval-data": "nope.jsonl"}))


def test_wrong_columns(cli: Cli, search_files: Any, out: Path) -> None:
    write_lines(search_files.data, [{"question": "Who?", "golden_answers": ["he"]}])
    message = cli.refusal(*own(search_files, out))
    assert "no column 'prompt' for the prompt. Found: golden_answers, question" in message
    assert "data.columns.prompt=COLUMN" in message


def test_empty_data(cli: Cli, search_files: Any, out: Path) -> None:
    search_files.data.write_text("")
    assert "has no rows" in cli.refusal(*own(search_files, out))


def test_data_that_is_not_json(cli: Cli, search_files: Any, out: Path) -> None:
    search_files.data.write_text("question,answer\n")
    assert "line 1 is not JSON" in cli.refusal(*own(search_files, out))


def test_an_empty_corpus(cli: Cli, search_files: Any, out: Path) -> None:
    search_files.corpus.write_text("\n")
    assert "docs.jsonl is empty" in cli.refusal(*own(search_files, out))


def test_a_corpus_that_is_not_there(cli: Cli, search_files: Any, out: Path) -> None:
    assert "nothing.jsonl does not exist" in cli.refusal(*own(search_files, out, corpus="nothing.jsonl"))


def test_a_corpus_with_a_broken_line(cli: Cli, search_files: Any, out: Path) -> None:
    search_files.corpus.write_text('{"id": "0", "contents": "a"}\n{"id": "1", "text": "b"}\n')
    message = cli.refusal(*own(search_files, out))
    assert "docs.jsonl, line 2: no key 'contents'" in message
    assert not out.exists()


def test_data_of_ones_own_needs_a_model(cli: Cli, search_files: Any, out: Path) -> None:
    assert "Give one with --model" in cli.refusal(*own(search_files, out, model=None))


def test_a_corpus_of_ones_own_needs_data(cli: Cli, search_files: Any, out: Path) -> None:
    assert "Give some: --data train.jsonl" in cli.refusal(*own(search_files, out, data=None))


def test_data_of_ones_own_needs_a_corpus(cli: Cli, search_files: Any, out: Path) -> None:
    message = cli.refusal(*own(search_files, out, corpus=None))
    assert "(--corpus docs.jsonl)" in message


# --- models -----------------------------------------------------------------------------------------------------------


def test_a_model_folder_that_is_not_there(cli: Cli, search_files: Any, out: Path) -> None:
    assert "There is no model folder" in cli.refusal(*own(search_files, out))


def test_a_hub_id_without_the_hub(cli: Cli, search_files: Any, out: Path) -> None:
    message = cli.refusal(*own(search_files, out, model="nobody/has-this"))
    assert "'nobody/has-this' is not on this machine, and the hub cannot be reached. Give --model a folder" in message


def test_a_folder_that_is_no_model(cli: Cli, search_files: Any, out: Path, tmp_path: Path) -> None:
    message = cli.refusal(*own(search_files, out, model=tmp_path))
    assert "cannot be loaded" in message
    assert not out.exists()


@pytest.mark.parametrize("template", [None, "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"])
@pytest.mark.slow
def test_a_model_without_a_known_chat_format(
    cli: Cli, search_files: Any, out: Path, tiny_model: Path, tmp_path: Path, template: str | None
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(tmp_path / "model")
    AutoModelForCausalLM.from_pretrained(tiny_model).save_pretrained(tmp_path / "model")
    message = cli.refusal(*own(search_files, out, model=tmp_path / "model"))
    assert ("Known formats: " if template is None else "give the tokenizer a template") in message
    assert not out.exists()


@pytest.mark.slow
def test_data_without_evaluation_data_is_trained_on(cli: Cli, search_files: Any, out: Path, tiny_model: Path) -> None:
    outcome = cli(*own(search_files, out, model=tiny_model), *QUICK)
    assert outcome.code == 0, outcome.err
    assert summary(out)["eval"] == {"before": {}, "after": {}}
    assert len(metrics(out)) == 2


@pytest.mark.slow
def test_prompts_without_room_are_refused_or_left_out(cli: Cli, search_files: Any, out: Path, tiny_model: Path) -> None:
    command = [*own(search_files, out, model=tiny_model), "--eval-data", search_files.data, *QUICK, "eval.limit=4"]
    message = cli.refusal(*command, "rollout.max_tokens=40")
    assert "None of the 4 training prompts leaves room for an answer" in message
    assert not out.exists()
    rows = [*SEARCH_DATA[0]]
    rows[2] = {**rows[2], "prompt": "What colour is Fimo? " * 200}
    write_lines(search_files.data, rows)
    outcome = cli(*command)
    assert outcome.code == 0, outcome.err
    assert "warning: 1 of 4 training prompts left out, which leave no room for an answer: '2'" in outcome.out
    assert summary(out)["left_out"] == {"train": ["2"], "eval": ["2"]}
    assert (summary(out)["eval"]["after"]["samples"], summary(out)["eval"]["after"]["left_out"]) == (3, 1)
    stored = [json.loads(line) for file in out.glob("trajectories/*") for line in file.open()]
    assert {row["sample"]["id"] for row in stored} <= {"0", "1", "3"}


# --- servers ----------------------------------------------------------------------------------------------------------


class MortalRetriever(ThreadingHTTPServer):
    """A server with Search-R1's API that answers ``calls`` requests and then hangs up on everybody."""

    def __init__(self, calls: int) -> None:
        super().__init__(("127.0.0.1", 0), RetrieveHandler)
        self.tickets = iter(range(calls))
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/retrieve"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class RetrieveHandler(BaseHTTPRequestHandler):
    server: MortalRetriever

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            alive = next(self.server.tickets, None) is not None
        if not alive:
            return  # without a word, as a crashed process
        found = [[doc for doc in SEARCH_DATA[1] if query in doc["contents"]] for query in body["queries"]]
        answer = json.dumps({"result": [[{"document": doc, "score": 1.0} for doc in docs] for docs in found]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:  # not on stderr
        pass


def http(files: Any, out: Path, model: Path, url: str) -> list[object]:
    return [*own(files, out, model=model, corpus=None), "--retriever", "http", "--url", url]


@pytest.mark.slow
def test_a_retriever_that_is_down_at_the_start(cli: Cli, search_files: Any, out: Path, tiny_model: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/retrieve"
        message = cli.refusal(*http(search_files, out, tiny_model, url))
    assert f"The retriever at {url} cannot be reached" in message
    assert "rlfactory search serve" in message
    assert not out.exists()


@pytest.mark.slow
def test_a_retriever_that_dies_in_mid_run(
    cli: Cli, search_files: Any, out: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "PAUSE_S", 0.0)
    steps = ("--steps", "4", "train.prompts_per_step=4", "train.group_size=8", "train.workers=1")
    with MortalRetriever(calls=12) as server:
        outcome = cli(*http(search_files, out, tiny_model, server.url), "--eval-data", search_files.data, *steps)
    rows = metrics(out)
    faults = [row["faults/infra"] for row in rows]
    if outcome.code:  # with a model that mostly searches, too little is left of a step
        assert "each time more than a third of it was masked" in outcome.err
        assert f"Step {len(rows)} is saved" in outcome.err or not rows
    else:
        assert len(rows) == 4
        assert sum(faults) > 0
        assert summary(out)["faults"]["infra"] == sum(faults)
    assert [row["masked"] for row in rows] == faults
    stored = [json.loads(line) for file in sorted(out.glob("trajectories/step-*")) for line in file.open()]
    spoilt = [item for item in stored if any(fault["kind"] == "infra" for fault in item["faults"])]
    assert len(spoilt) == sum(faults)
    assert all(item["masked"] for item in spoilt)


# --- a full disk ------------------------------------------------------------------------------------------------------


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Writing more into one file fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
def test_a_disk_that_fills_while_saving_leaves_the_old_checkpoint(cli: Cli, out: Path, tiny_model: Path) -> None:
    weights = (tiny_model / "model.safetensors").stat().st_size
    assert cli("run", "--plugin", TINY_TASK, "--out", out, *QUICK, "rollout.deterministic=true").code == 0
    first = repeatable(out)

    with files_limited_to(weights - 1):
        message = cli.refusal("run", "--resume", out, "--steps", 4)
    assert "The checkpoint of step 4 could not be written" in message
    assert "Earlier checkpoints are intact. Make room" in message
    assert checkpoints(out) == ["latest", "step-2"]
    assert (out / "checkpoints" / "latest").resolve().name == "step-2"

    assert cli("run", "--resume", out).code == 0
    assert checkpoints(out) == ["latest", "step-2", "step-4"]
    assert repeatable(out)[:2] == first
    assert len(metrics(out)) == 4


@pytest.mark.slow
def test_a_disk_that_is_full_from_the_start(cli: Cli, out: Path, tiny_model: Path) -> None:
    with files_limited_to(0):
        message = cli.refusal("run", "--plugin", TINY_TASK, "--out", out, *QUICK)
    assert "cannot write" in message


# --- nobody reads the output ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["| head -1", "> /dev/full"])
def test_a_run_goes_on_when_nobody_reads_its_output(out: Path, reader: str) -> None:
    command = [sys.executable, "-m", "rlfactory_core", "run", "--plugin", TINY_TASK, *QUICK, "--out", str(out)]
    script = f"set -o pipefail; {shlex.join(command)} {reader}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert summary(out)["steps"] == 2
