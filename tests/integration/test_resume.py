"""A run that is killed, stopped or extended continues as if it had not been interrupted."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from runs import (
    TINY_TASK,
    Cli,
    checkpoints,
    finish,
    metrics,
    repeatable,
    start,
    summary,
    wait_for_no_process,
    wait_until,
)

pytestmark = pytest.mark.slow

RUN = ("run", "--plugin", TINY_TASK, "eval.limit=8")
SMALL = ("train.prompts_per_step=4", "train.group_size=4")


def kill_after(step: int, *arguments: object, run: Path) -> None:
    """Start the command, SIGKILL its first process when the step's metrics are there, and wait for the others' end."""
    process = start(*arguments)
    wait_until(lambda: len(metrics(run)) >= step, process)
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    wait_for_no_process(process.pid)


@pytest.mark.parametrize(
    ("kills", "options"),
    [
        pytest.param(1, ["train.workers=2", "eval.every=3"], id="two processes"),
        pytest.param(
            2, ["train.workers=1", "train.kl=0.05", "train.schedule=cosine", "train.updates_per_step=2"], id="one"
        ),
    ],
)
def test_a_killed_run_resumes_to_the_same_metrics(cli: Cli, tmp_path: Path, kills: int, options: Sequence[str]) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = [*RUN, *SMALL, *options, "rollout.deterministic=true", "--steps", "10"]
    outcome = cli(*command, "--out", whole)
    assert outcome.code == 0, outcome.err

    steps = sorted(random.Random(7).sample(range(3, 9), kills))
    kill_after(steps[0], *command, "--out", killed, run=killed)
    for step in steps[1:]:
        kill_after(step, "run", "--resume", killed, run=killed)
    assert len(metrics(killed)) < 10
    outcome = cli("run", "--resume", killed)
    assert outcome.code == 0, outcome.err

    assert [row["step"] for row in repeatable(whole)] == list(range(1, 11))
    assert repeatable(killed) == repeatable(whole)
    for part in ("eval", "sampled_tokens", "trained_tokens", "faults", "steps"):
        assert summary(killed)[part] == summary(whole)[part]
    assert checkpoints(killed) == checkpoints(whole) == ["latest", "step-10", "step-8"]
    last = [(run / "checkpoints" / "latest" / "model.safetensors").read_bytes() for run in (whole, killed)]
    assert last[0] == last[1]


def test_a_run_killed_before_its_first_checkpoint_cannot_be_resumed(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    kill_after(1, *RUN, "train.workers=1", "checkpoint.every=0", "--steps", "1000", "--out", run, run=run)
    message = cli.refusal("run", "--resume", run)
    assert "There is no checkpoint" in message
    assert "Start it anew" in message


def test_ctrl_c_stops_after_the_step_and_the_run_can_be_made_to_end_elsewhere(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(*RUN, *SMALL, "train.workers=2", "checkpoint.every=0", "--steps", "100000", "--out", run)
    wait_until(lambda: len(metrics(run)) >= 2, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the group
    outcome = finish(process)
    wait_for_no_process(process.pid)

    done = len(metrics(run))
    assert outcome.code == 130, outcome.out
    assert "stopping after this step" in outcome.out
    assert f"Stopped after step {done}, which is saved. Go on with: rlfactory run --resume {run}" in outcome.out
    assert "Traceback" not in outcome.out
    assert "\x1b" not in outcome.out
    assert checkpoints(run) == ["latest", f"step-{done}"]

    resumed = cli("run", "--resume", run, "--steps", done + 2, "checkpoint.every=1")
    assert resumed.code == 0, resumed.err
    assert [row["step"] for row in metrics(run)] == list(range(1, done + 3))
    assert summary(run)["steps"] == done + 2
    assert "exact_match" in summary(run)["eval"]["before"]
    assert "exact_match" in summary(run)["eval"]["after"]
    assert (run / "report.html").exists()
    assert checkpoints(run) == ["latest", f"step-{done + 1}", f"step-{done + 2}"]


def test_a_finished_run_can_be_made_longer(cli: Cli, tmp_path: Path) -> None:
    long, made_longer = tmp_path / "long", tmp_path / "made-longer"
    command = [*RUN, *SMALL, "train.workers=1", "rollout.deterministic=true"]
    assert cli(*command, "--steps", "4", "--out", long).code == 0
    assert cli(*command, "--steps", "2", "--out", made_longer).code == 0
    assert cli("run", "--resume", made_longer, "train.steps=4").code == 0
    assert repeatable(made_longer) == repeatable(long)
    assert summary(made_longer)["eval"] == summary(long)["eval"]


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(
        *RUN, *SMALL, "--hangs=true", "tools.deadline_s=300", "train.workers=2", "--steps", "4", "--out", run
    )
    assert process.stdout is not None
    said: list[str] = []
    for expected in ("train: ", "stopping after this step"):
        for line in process.stdout:
            said.append(line)
            if expected in line:
                break
        else:
            pytest.fail(f"ended with {process.wait()} before {expected!r}:\n{''.join(said)}")
        os.killpg(process.pid, signal.SIGINT)
    outcome = finish(process, seconds=60)
    wait_for_no_process(process.pid)
    assert outcome.code == 130, outcome.out
    assert outcome.out.strip().endswith("stopped"), outcome.out
    assert "Traceback" not in outcome.out


def test_rollouts_one_update_behind_say_so(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = cli(*RUN, *SMALL, "train.workers=1", "train.staleness=1", "--steps", "5", "--out", run)
    assert outcome.code == 0, outcome.err
    rows = metrics(run)
    assert rows[0]["staleness"] == 0
    assert all(0 < row["staleness"] <= 1 for row in rows[1:])
    assert all(0 < row["importance_weight"] <= 2 for row in rows if row["trained_tokens"])


def test_the_distance_to_the_start_model_is_measured(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = cli(*RUN, *SMALL, "train.workers=1", "train.kl=0.1", "--steps", "4", "--out", run)
    assert outcome.code == 0, outcome.err
    kl = [row["kl"] for row in metrics(run)]
    assert abs(kl[0]) < 1e-5
    assert all(value > 1e-4 for value in kl[2:])
