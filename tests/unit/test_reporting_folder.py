"""The run's folder: names, atomic files, metrics that survive a crash and a resume, trajectories."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reporting_examples import TEXTS, decode, finished_run, infra_fault, make_trajectory

from rlfactory_core.errors import CheckpointError, DataError, UsageError
from rlfactory_core.reporting.folder import RunFolder, read_json, write_atomic, write_json
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.types import Fault, FaultKind


def test_create_makes_unique_folders_named_by_time_and_plugin(tmp_path: Path) -> None:
    first, second = (RunFolder.create("my/search", root=tmp_path) for _ in range(2))
    assert first.path != second.path
    assert first.name.split("-", 2)[2].startswith("my-search")
    assert first.trajectories.is_dir()
    assert first.checkpoints.is_dir()


def test_create_refuses_a_folder_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("x")
    with pytest.raises(UsageError, match=r"not empty.*--resume"):
        RunFolder.create("search", out=tmp_path)


def test_open_takes_a_path_or_a_name_and_names_the_nearest_run(tmp_path: Path) -> None:
    made = RunFolder.create("search", root=tmp_path)
    made.write_config({"seed": 3})
    assert RunFolder.open(made.path).read_config() == {"seed": 3}
    assert RunFolder.open(made.name, root=tmp_path).path == made.path
    with pytest.raises(UsageError, match=f"Did you mean '{made.name}'"):
        RunFolder.open(made.name + "x", root=tmp_path)
    with pytest.raises(UsageError, match=f"newest under .*{made.name}"):
        RunFolder.open("zzz", root=tmp_path)
    with pytest.raises(UsageError, match="none under"):
        RunFolder.open("zzz", root=tmp_path / "absent")


def test_metrics_lose_a_torn_line_and_the_steps_that_a_resume_repeats(tmp_path: Path) -> None:
    folder = RunFolder.create("search", root=tmp_path)
    for step in range(1, 6):
        folder.append_metrics(step, {"reward": step / 10, "loss": math.nan if step == 2 else 0.5})
        folder.write_trajectories(step, [make_trajectory()], decode)
    whole = folder.metrics.read_bytes()
    with folder.metrics.open("a") as file:
        file.write('{"step": 6, "rew')
    assert [row["step"] for row in folder.read_metrics()] == [1, 2, 3, 4, 5]
    assert folder.read_metrics()[1]["loss"] is None
    folder.cut_after(3)
    assert [row["step"] for row in folder.read_metrics()] == [1, 2, 3]
    assert folder.trajectory_steps() == [1, 2, 3]
    for step in (4, 5):
        folder.append_metrics(step, {"reward": step / 10, "loss": 0.5})
    assert folder.metrics.read_bytes() == whole


def test_a_broken_line_within_metrics_is_named(tmp_path: Path) -> None:
    folder = RunFolder.create("search", root=tmp_path)
    folder.metrics.write_text('{"step":1}\nnonsense\n{"step":2}\n')
    with pytest.raises(DataError, match="line 2"):
        folder.read_metrics()


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_atomic(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["summary.json"]


def test_trajectories_come_back_as_they_were_with_their_texts(tmp_path: Path) -> None:
    folder = RunFolder.create("search", root=tmp_path)
    written = [make_trajectory(0.3, calls=2), make_trajectory(0.0, faults=(infra_fault(),), attempt=1)]
    path = folder.write_trajectories(10, written, decode)
    assert path.name == "step-000010.jsonl"
    stored = list(folder.read_trajectories(10))
    assert [item.trajectory for item in stored] == written
    assert stored[0].texts[0].context == TEXTS[0]
    assert stored[0].texts[1].context == TEXTS[2]
    assert "".join(text.sampled for text in stored[0].texts) == decode(
        [token for token, mask in zip(written[0].ids, written[0].loss_mask, strict=True) if mask]
    )
    row = json.loads(path.read_text().splitlines()[1])
    assert row["masked"] is True
    assert row["faults"][0]["kind"] == "infra"


def test_a_trajectory_of_a_newer_format_is_refused_with_its_place(tmp_path: Path) -> None:
    folder = RunFolder.create("search", root=tmp_path)
    row = StoredTrajectory.of(make_trajectory(), decode).to_dict()
    folder.trajectory_file(1).write_text(json.dumps({**row, "format": 99}) + "\n")
    with pytest.raises(DataError, match=r"line 1.*upgrade"):
        list(folder.read_trajectories(1))


def test_the_lines_of_a_trajectory_file_stay_as_they_are() -> None:
    """The file was written when the format's number was 1: a change of it needs another number and another file."""
    for line in (Path(__file__).parents[1] / "data" / "trajectories-1.jsonl").read_text().splitlines():
        written = StoredTrajectory.from_dict(json.loads(line)).to_dict()
        assert json.dumps(written, ensure_ascii=False, separators=(",", ":")) == line


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"stop": "tired"}, "stop: Input should be 'final_answer'"),
        ({"attempt": "x"}, "attempt: Input should be a valid integer"),
        ({"sample": {"prompt": "?"}}, r"sample\.id: Field required"),
        ({"turns": [{}]}, r"turns\.0\.context_ids: Field required"),
    ],
)
def test_a_line_that_is_no_trajectory_is_refused_with_its_place(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    folder = RunFolder.create("search", root=tmp_path)
    row = StoredTrajectory.of(make_trajectory(), decode).to_dict()
    folder.trajectory_file(1).write_text(json.dumps({**row, **change}) + "\n")
    with pytest.raises(DataError, match=rf"line 1: not a trajectory \({problem}"):
        list(folder.read_trajectories(1))


def test_summary_and_lock_are_json(tmp_path: Path) -> None:
    folder = finished_run(tmp_path)
    write_json(folder.plugins_lock, {"search": {"version": "1"}})
    assert read_json(folder.plugins_lock) == {"search": {"version": "1"}}
    assert folder.read_summary()["steps"] == 60


def test_what_scoring_took_and_counted_is_kept_and_older_files_are_read_without_it() -> None:
    made = make_trajectory()
    assert made.score is not None
    whole = replace(made, score=replace(made.score, counts={"judge.requests": 2.0}, seconds=0.25))
    row = json.loads(json.dumps(StoredTrajectory.of(whole, decode).to_dict()))
    read = StoredTrajectory.from_dict(row).trajectory.score
    assert read is not None
    assert (read.counts, read.seconds) == ({"judge.requests": 2.0}, 0.25)
    for name in ("counts", "seconds"):
        del row["score"][name]
    older = StoredTrajectory.from_dict(row).trajectory.score
    assert older == replace(read, counts={}, seconds=0.0)


def test_the_state_of_an_environment_is_kept() -> None:
    told = replace(make_trajectory(), info={"room": "attic", "keys": [1, 2]})
    assert StoredTrajectory.from_line(StoredTrajectory.of(told, decode).to_line()).trajectory.info == told.info
    assert "info" not in StoredTrajectory.of(make_trajectory(), decode).to_dict()


def test_what_went_wrong_is_kept_where_older_readers_take_no_notice() -> None:
    faults = (Fault(FaultKind.TOOL, "search", "no"), Fault(FaultKind.VERIFIER, "judge", "boom", code="crashed"))
    row = StoredTrajectory.of(replace(make_trajectory(), faults=faults), decode).to_dict()
    assert StoredTrajectory.from_dict(row).trajectory.faults == faults
    assert set(row["faults"][1]) == {"kind", "source", "message", "turn"}
    del row["fault_codes"]
    assert [fault.code for fault in StoredTrajectory.from_dict(row).trajectory.faults] == ["", ""]
