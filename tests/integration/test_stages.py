"""A run of several stages: it learns from demonstrations, and a kill within or between stages loses nothing."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from runs import TINY_TASK, Cli, finish, metrics, repeatable, start, summary, wait_for_no_process, wait_until

from rlfactory_core.reporting.folder import RunFolder

pytestmark = pytest.mark.slow

STAGES = [
    {"method": "sft", "source": "solve", "steps": 4, "lr": 1e-3},
    {"method": "rft", "steps": 3, "prompts_per_step": 4, "group_size": 4},
    {"method": "grpo", "updates_per_step": 2, "schedule": "linear", "kl": 0.05},
]
RUN = (
    *("run", "--plugin", TINY_TASK, "eval.limit=8", "eval.every=3", "checkpoint.every=1", "rollout.deterministic=true"),
    *("train.workers=1", "train.prompts_per_step=4", "train.group_size=4", "--steps", "4"),
    f"stages={json.dumps(STAGES)}",
)


@pytest.mark.parametrize("kills", [(2,), (4, 9)], ids=["within a stage", "between two, and within the last"])
def test_a_killed_run_resumes_to_the_same_metrics(
    cli: Cli, tmp_path: Path, kills: tuple[int, ...], whole_run: Path
) -> None:
    killed = tmp_path / "killed"
    command = [*RUN, "--out", killed]
    for kill in kills:
        process = start(*command)
        wait_until(lambda after=kill: len(metrics(killed)) >= after, process)  # type: ignore[misc]
        process.kill()
        assert finish(process).code == -signal.SIGKILL
        wait_for_no_process(process.pid)
        command = ["run", "--resume", killed]
    outcome = cli(*command)
    assert outcome.code == 0, outcome.err

    assert repeatable(killed) == repeatable(whole_run)
    for part in ("eval", "sampled_tokens", "trained_tokens", "stages", "steps"):
        assert summary(killed)[part] == summary(whole_run)[part]
    last = [(run / "checkpoints" / "latest" / "model.safetensors").read_bytes() for run in (whole_run, killed)]
    assert last[0] == last[1]


def test_each_stage_is_in_the_record(whole_run: Path) -> None:
    rows = metrics(whole_run)
    assert [row["stage"] for row in rows] == [1.0] * 4 + [2.0] * 3 + [3.0] * 4
    assert [(each["method"], each["first"], each["last"]) for each in summary(whole_run)["stages"]] == [
        ("sft", 1, 4),
        ("rft", 5, 7),
        ("grpo", 8, 11),
    ]
    assert summary(whole_run)["ended"] == {"by": "steps", "text": "did all 3 stages"}
    # Of two updates a step, the first is at the start of the stage, with which it is compared.
    assert 0 < rows[7]["kl"] < rows[-1]["kl"]
    assert rows[0]["nll"] > rows[3]["nll"]
    assert not {"reward", "mismatch_kl", "sampled_tokens_s"} & rows[0].keys()
    assert {"reward", "mismatch_kl", "learnt_from"} <= rows[4].keys()
    # Where a stage ends it is known how far it came.
    assert {"eval/exact_match", "eval/called", "eval/nll"} <= rows[3].keys()
    assert (rows[7]["lr"], rows[8]["lr"]) == (7.5e-4, 5e-4)  # the schedule of each stage is its own


def test_a_stage_goes_on_with_the_samples_that_the_stages_before_have_left(whole_run: Path) -> None:
    folder = RunFolder.open(whole_run)
    demonstrated, own, compared = (
        {each.trajectory.sample.id for step in steps for each in folder.read_trajectories(f"step-{step:06d}")}
        for steps in (range(1, 5), range(5, 8), range(8, 12))
    )
    assert (len(demonstrated), len(own), len(compared)) == (32, 12, 16)
    assert not demonstrated & own
    assert not (demonstrated | own) & compared


def test_a_run_that_is_finished_trains_its_last_stage_longer(cli: Cli, whole_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "longer"
    shutil.copytree(whole_run, run, symlinks=True)
    assert "it has done 4 steps in its last stage" in cli.refusal("run", "--resume", run)
    assert cli("run", "--resume", run, "--steps", "5").code == 0
    assert [row["step"] for row in metrics(run)] == list(range(1, 13))


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("stages") / "whole"
    outcome = finish(start(*RUN, "--out", run))
    assert outcome.code == 0, outcome.out
    return run
