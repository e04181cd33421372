"""``rlfactory play``: with a checkpoint of the embedded engine and with a server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_openai import serve
from runs import TINY_TASK
from talked_task import PLUGIN, oracle


def played(folder: Path, *words: str, stdin: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, since it reads standard input."""
    command = [sys.executable, "-m", "rlfactory_core", "play", *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=folder, timeout=300, check=False)


def views(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    (tmp_path / "places.py").write_text(PLUGIN, encoding="utf-8")
    return "./places.py"


@pytest.mark.slow  # it warm-starts a model and starts a process that loads it
def test_a_checkpoint_answers_and_its_conversation_is_saved(tiny_model: Path, tmp_path: Path) -> None:
    orders = ['{"do": "go"}', '{"do": "back", "turn": 1}', '{"do": "go"}', '{"do": "save"}', '{"do": "wait"}']
    done = played(tmp_path, "--plugin", TINY_TASK, "--model", str(tiny_model), "--json", stdin="\n".join(orders))
    _, first, _, second, saved, refused = views(done)
    assert first["stop"]
    assert [turn["text"] for turn in first["turns"]] == [turn["text"] for turn in second["turns"]]  # both are greedy
    assert refused["problem"].startswith("There is no order 'wait'.")
    assert saved["problem"] == ""
    line = json.loads((tmp_path / "demonstrations.jsonl").read_text(encoding="utf-8"))
    assert [message["role"] for message in line["messages"]][-1] == "assistant"
    assert line["tools"] == second["tools"]
    assert line["reward"] == second["reward"]


@pytest.mark.slow
def test_by_hand_with_a_server(plugin: str, tmp_path: Path) -> None:
    with serve(oracle) as server:
        done = played(tmp_path, "--plugin", plugin, "--api", server.url, stdin="\n\nback x\nedit 2 no\nquit\n")
    assert done.returncode == 0, done.stderr
    assert "[Ann] Where is Ann?" in done.stdout
    assert "Ann is in Tarn" in done.stdout
    assert "the end: final answer, reward 1, exact_match 1" in done.stdout
    assert "Got 'x', expected a number." in done.stdout
    assert "2 (yours)  no\nthe end: no tool call, reward 0" in done.stdout


@pytest.mark.slow
def test_a_run_and_a_model_are_one_too_many(tmp_path: Path) -> None:
    done = played(tmp_path, "one", "--model", "other", stdin="")
    assert done.returncode == 2
    assert "Got the run one and --model other" in done.stderr
