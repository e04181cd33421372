"""A signal ends a long evaluation at once, and the run goes on from there as if nothing had happened."""

from __future__ import annotations

import os
import signal
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

PLUGIN = """
import asyncio
import os
from pathlib import Path

from rlfactory_core import Score, hookimpl
from tiny_task import Colours


class Waiting:
    '''After the first attempt of the training, held-out attempts take two minutes, if ``SLOW`` names a file.'''

    async def score(self, trajectory):
        if slow := os.environ.get("SLOW"):
            if trajectory.sample.split == "train":
                Path(slow).with_suffix(".trained").touch()
            elif Path(slow).with_suffix(".trained").exists():
                Path(slow).touch()
                await asyncio.sleep(120)
        return Score(1.0)


@hookimpl
def rlfactory_tasks(register):
    register("colours", Colours)


@hookimpl
def rlfactory_reward_scorers(register):
    register("waiting", Waiting)
"""


@pytest.mark.parametrize("every", [1, 0], ids=["between steps", "after the training"])
def test_one_signal_ends_it_and_nothing_is_lost(cli: Cli, tmp_path: Path, every: int) -> None:
    (tmp_path / "slow_eval.py").write_text(PLUGIN)
    whole, stopped, slow = tmp_path / "whole", tmp_path / "stopped", tmp_path / "slow"
    command = [
        *("run", "--plugin", tmp_path / "slow_eval.py", "rewards=[{name: exact_match}, {name: waiting}]"),
        *("train.workers=1", "train.prompts_per_step=2", "train.group_size=4", "rollout.deterministic=true"),
        *(f"eval.every={every}", "eval.limit=4", "eval.sampled=false", "--steps", 2),
    ]
    found = {"PYTHONPATH": str(Path(TINY_TASK).parent), "SLOW": str(slow)}
    process = start(*command, "--out", stopped, env={**os.environ, **found})
    wait_until(slow.exists, process)
    process.send_signal(signal.SIGTERM)
    outcome = finish(process, seconds=60)
    wait_for_no_process(process.pid)
    assert outcome.code == 128 + signal.SIGTERM, outcome.out
    assert "Traceback" not in outcome.out
    done = 1 if every else 2
    after, within = "after step 1, which is saved.", "in an evaluation; all steps before it are saved."
    assert f"Stopped {after if every else within} Go on with: rlfactory run --resume {stopped}" in outcome.out
    assert checkpoints(stopped)[-1] == f"step-{done}"
    assert len(metrics(stopped)) == done
    assert "eval/exact_match" not in metrics(stopped)[-1]

    assert cli("run", "--resume", stopped).code == 0
    assert cli(*command, "--out", whole).code == 0
    assert repeatable(stopped) == repeatable(whole)
    assert summary(stopped)["eval"] == summary(whole)["eval"]
