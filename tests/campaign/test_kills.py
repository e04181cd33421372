"""Kills and signals at random times: a run that is resumed ends as the reference run, to the bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from campaign_runs import Reference, command, nothing_saved, resumed, trials
from runs import finish, start, wait_for_no_process

pytestmark = pytest.mark.slow
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1)


def interrupt(number: int, seconds: float, *arguments: object) -> tuple[int, str]:
    """Start a command and send it a signal after a while; its exit code and what it said. It may end before."""
    process = start(*arguments)
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, number)
        out = finish(process).out
    wait_for_no_process(process.pid)
    return process.returncode, out


def check_ends_as(reference: Reference, run: Path) -> None:
    outcome = resumed(run)
    if not nothing_saved(outcome):
        assert outcome.code == 0 or "is finished" in outcome.out, outcome.out
        assert reference.is_equalled_by(run)


@pytest.mark.parametrize("seed", trials(40))
def test_a_killed_run_is_resumed_to_the_same_end(reference: Reference, tmp_path: Path, seed: int) -> None:
    rng, run = random.Random(f"kill {seed}"), tmp_path / "run"
    interrupt(signal.SIGKILL, rng.uniform(0.3, 1.0) * reference.seconds, *command(run))
    if rng.random() < 0.3 and run.exists():  # and once more
        interrupt(signal.SIGKILL, rng.uniform(0.3, 0.8) * reference.seconds, "run", "--resume", run)
    check_ends_as(reference, run)


@pytest.mark.parametrize("seed", trials(45))
def test_a_run_that_a_signal_stops_saves_its_step(reference: Reference, tmp_path: Path, seed: int) -> None:
    run, number = tmp_path / "run", SIGNALS[seed % 3]
    seconds = random.Random(f"signal {seed}").uniform(0.3, 1.0) * reference.seconds
    code, out = interrupt(number, seconds, *command(run))
    # Before its first lines of Python, a process ends by the signal itself.
    assert code in (0, 128 + number, -number), out
    if "Stopped after step" in out:
        assert "Traceback" not in out
    check_ends_as(reference, run)
