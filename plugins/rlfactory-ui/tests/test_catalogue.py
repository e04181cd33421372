"""The list of runs, each from a few small readings."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest
from reporting_examples import finished_run, write_run
from rlfactory_ui import processes
from rlfactory_ui.catalogue import Catalogue, State

from rlfactory_core.errors import UsageError
from rlfactory_core.reporting.folder import RunFolder


def configured(root: Path, name: str, **facts: object) -> RunFolder:
    folder = RunFolder.create("t", root / name)
    folder.write_config(
        {"plugin": "search", "engine": "local", "model": None, "seed": 3, "train": {"steps": 60}, **facts}
    )
    return folder


def held_by(folder: RunFolder, pid: int) -> None:
    (folder.path / ".lock").write_text(f"process {pid} on {platform.node()}, since now\n")


def test_a_finished_run(tmp_path: Path) -> None:
    folder = finished_run(tmp_path)
    (entry,) = Catalogue(folder.path.parent).entries()
    assert entry.name == folder.name
    assert entry.state is State.FINISHED
    assert entry.before is not None
    assert entry.after is not None
    assert len(entry.spark) > 5


def test_what_the_others_do(tmp_path: Path) -> None:
    lost, stopped, running = (configured(tmp_path, name) for name in ("lost", "stopped", "running"))
    for folder in (lost, stopped, running):
        folder.append_metrics(1, {"reward": 0.1})
    stopped.report.write_text("")
    held_by(lost, 2**22 + 1)  # no process has this number
    states = {entry.name: entry.state for entry in Catalogue(tmp_path).entries()}
    assert states == {"lost": State.LOST, "stopped": State.STOPPED, "running": State.LOST}
    with running.locked():
        assert Catalogue(tmp_path).entry(running).state is State.RUNNING
        with pytest.raises(UsageError, match="running is running"):
            Catalogue(tmp_path).delete("running")


def test_a_run_that_was_told_to_stop_before_its_first_result_is_stopped(tmp_path: Path) -> None:
    for name, stopped in (("told", True), ("broken", False)):
        launch = {"name": name, "words": ["run"], "pid": 2**22 + 1, "started": 1.0, "stopped": stopped}
        (tmp_path / processes.LAUNCHES).mkdir(exist_ok=True)
        (tmp_path / processes.LAUNCHES / f"{name}.json").write_text(json.dumps(launch))
    states = {entry.name: entry.state for entry in Catalogue(tmp_path).entries()}
    assert states == {"told": State.STOPPED, "broken": State.FAILED}


def test_the_latest_held_out_result_is_known_while_a_run_goes_on(tmp_path: Path) -> None:
    folder = configured(tmp_path, "long")
    for step in range(1, 400):
        folder.append_metrics(step, {"reward": 0.1, **({"eval/exact_match": step / 1000} if step % 100 == 0 else {})})
    assert Catalogue(tmp_path).entry(folder).latest == 0.3


def test_a_later_process_of_the_same_number_is_another_one(tmp_path: Path) -> None:
    folder = configured(tmp_path, "old")
    held_by(folder, os.getpid())
    long_ago = time.time() - 10**6
    os.utime(folder.path / ".lock", (long_ago, long_ago))
    assert processes.holder(folder) is None


def test_what_has_just_been_started_lives_and_what_has_ended_does_not() -> None:
    """In its first moments, a process has no command line yet."""
    waits = [sys.executable, "-S", "-c", "input()"]
    for _ in range(20):
        process = subprocess.Popen(waits, stdin=subprocess.PIPE)
        launch = processes.Launch("mine", (), process.pid, time.time())
        assert launch.alive
        process.communicate(b"\n")
        assert not launch.alive


def test_an_entry_is_read_again_when_a_file_changes(tmp_path: Path) -> None:
    folder = configured(tmp_path, "run")
    catalogue = Catalogue(tmp_path)
    assert catalogue.entry(folder) is catalogue.entry(folder)
    folder.append_metrics(7, {"reward": 0.5})
    assert catalogue.entry(folder).step == 7
    assert catalogue.entry(folder).steps == 60


def test_a_damaged_run_hides_no_other(tmp_path: Path) -> None:
    broken = configured(tmp_path, "broken")
    broken.config.write_bytes(b"\xff\xfe: [")
    broken.metrics.write_bytes(b"\x00\x01not json\n")
    broken.summary.write_text("[1, 2]")
    configured(tmp_path, "whole")
    (tmp_path / "no-run").mkdir()
    (tmp_path / "file").write_text("")
    assert {entry.name for entry in Catalogue(tmp_path).entries()} == {"broken", "whole"}


@pytest.mark.parametrize("name", ["..", ".", "", "../x", "a/b", "/etc", "nowhere", "run\0"])
def test_nothing_outside_the_folder_is_a_run(tmp_path: Path, name: str) -> None:
    (tmp_path / "runs").mkdir()
    configured(tmp_path, "x")
    catalogue = Catalogue(tmp_path / "runs")
    with pytest.raises(UsageError, match="There is no run"):
        catalogue.folder(name)
    with pytest.raises(UsageError, match="There is no run"):
        catalogue.delete(name)
    assert (tmp_path / "x" / "config.yaml").exists()


def test_tags_and_a_note_are_in_the_runs_folder(tmp_path: Path) -> None:
    configured(tmp_path, "run")
    Catalogue(tmp_path).annotate("run", ["paper", "good", "paper"], "keep “this”")
    (entry,) = Catalogue(tmp_path).entries()
    assert (entry.tags, entry.note) == (["paper", "good"], "keep “this”")


def test_a_deleted_run_is_gone(tmp_path: Path) -> None:
    folder = configured(tmp_path, "run")
    write_run(folder, steps=3)
    Catalogue(tmp_path).delete("run")
    assert Catalogue(tmp_path).entries() == []
    assert not folder.path.exists()
