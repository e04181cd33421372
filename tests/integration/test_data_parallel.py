"""Several processes give the results of one, and a process that fails ends the run."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import TINY_TASK, Cli, metrics

from rlfactory_core.engines.local import processes, workers

pytestmark = pytest.mark.slow

RUN = ("run", "--plugin", TINY_TASK, "rollout.max_tokens=320", "rollout.max_turn_tokens=40", "eval.limit=2")
STEP = ("train.prompts_per_step=4", "train.group_size=4", "train.lr=1e-3")


def sampled(run: Path, step: int) -> dict[tuple[str, int], Any]:
    """What the model wrote, by sample and attempt."""
    lines = (run / "trajectories" / f"step-{step:06d}.jsonl").read_text(encoding="utf-8").splitlines()
    stored = [json.loads(line) for line in lines]
    return {
        (item["sample"]["id"], item["attempt"]): [turn["message"]["content"] for turn in item["turns"]]
        for item in stored
    }


def test_two_processes_do_what_one_does(cli: Cli, tiny_model: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for run, count in ((one, 1), (two, 2)):
        command = [*RUN, *STEP, "--model", tiny_model, "--steps", "3", f"train.workers={count}"]
        outcome = cli(*command, "rollout.deterministic=true", "--out", run)
        assert outcome.code == 0, outcome.err

    assert len(sampled(one, 1)) == 16
    assert sampled(two, 1) == sampled(one, 1)
    first, same = metrics(one)[0], metrics(two)[0]
    assert first["trained_tokens"] == same["trained_tokens"] > 0
    assert same.keys() == first.keys()
    assert same["tool/search/calls"] == first["tool/search/calls"] > 0
    for name in ("reward", "exact_match", "sampled_tokens", "loss", "entropy", "grad_norm"):
        assert same[name] == pytest.approx(first[name], rel=1e-3, abs=1e-6), name
    # the same prompts ever after, whatever rounding does to the tokens
    assert [set(sampled(two, step)) for step in (2, 3)] == [set(sampled(one, step)) for step in (2, 3)]
    assert multiprocessing.active_children() == []


def reduced(process: workers.Workers) -> list[list[float]]:
    """The gradients of both processes, summed in four parts; the second parameter has one in one process only."""
    workers.BUCKET = 4
    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in (3, 2, 5, 1, 4)]
    for number, parameter in enumerate(parameters):
        if number != 1 or process.first:
            parameter.grad = torch.full_like(parameter, number + 10.0 * process.rank)
    process.reduce_gradients(parameters)
    return [parameter.grad.tolist() for parameter in parameters if parameter.grad is not None]


def test_gradients_are_summed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "BUCKET", workers.BUCKET)  # which `reduced` sets
    with processes.worker_processes(2, reduced) as first:
        found = reduced(first)
    assert found == [[10.0] * 3, [1.0] * 2, [14.0] * 5, [16.0], [18.0] * 4]


def test_a_process_that_fails_shows_its_traceback(cli: Cli, tiny_model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = cli(*RUN, "--model", tiny_model, "--breaks", "raise", "train.workers=2", "--out", run)
    assert outcome.code == 1
    assert "A worker process failed:\nTraceback" in outcome.err
    assert "RuntimeError: the tools of this process do not open" in outcome.err
    assert multiprocessing.active_children() == []
    assert not run.exists()


def test_a_process_that_is_killed_is_named(cli: Cli, tiny_model: Path, tmp_path: Path) -> None:
    outcome = cli(*RUN, "--model", tiny_model, "--breaks", "die", "train.workers=2", "--out", tmp_path / "run")
    assert outcome.code == 1
    assert "rlfactory-worker-1 ended with exit code -9. It was killed" in outcome.err
    assert "Traceback" not in outcome.err
    assert multiprocessing.active_children() == []


def test_a_process_without_a_heartbeat_is_killed(
    cli: Cli, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"

    def stop() -> None:
        _stop_the_worker(run / "metrics.jsonl")
        monkeypatch.setattr(processes, "SILENT_S", 3.0)  # not before: a loaded machine is silent for longer

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    outcome = cli(*RUN, *STEP, "--model", tiny_model, "train.workers=2", "--steps", "100000", "--out", run)
    assert outcome.code == 1
    assert "rlfactory-worker-1 sent no heartbeat for 3 s, and was killed." in outcome.err
    stopping.join(10)
    assert not stopping.is_alive()  # it has stopped the worker, so the message above is about that
    assert multiprocessing.active_children() == []


def _stop_the_worker(begun: Path) -> None:
    while not begun.exists():
        time.sleep(0.005)
    (worker,) = multiprocessing.active_children()
    assert worker.pid
    os.kill(worker.pid, signal.SIGSTOP)
