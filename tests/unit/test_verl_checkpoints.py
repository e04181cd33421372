"""verl's checkpoints under our own names: whole ones are linked, old ones go, a crash in between loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlfactory_core.engines.verl import checkpoints as module
from rlfactory_core.engines.verl.checkpoints import RecorderState, latest_step, publish, read_state
from rlfactory_core.errors import CheckpointError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoints"
    path.mkdir()
    return path


def save(folder: Path, step: int) -> None:
    """As verl does: the shards, the Hugging Face folder, and then the tracker."""
    own = folder / "verl" / f"global_step_{step}"
    (own / "actor" / "huggingface").mkdir(parents=True)
    (own / "actor" / "huggingface" / "config.json").write_text(str(step))
    (own / "actor" / "model_world_size_1_rank_0.pt").write_text("weights")
    (own / "data.pt").write_text("position")
    (folder / "verl" / "latest_checkpointed_iteration.txt").write_text(str(step))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_are_kept_and_linked(folder: Path) -> None:
    for step in (2, 4, 10, 12):
        save(folder, step)
        publish(folder, RecorderState(step, {"sampled_tokens": step}, {}), keep=2)
        assert (folder / "latest" / "config.json").read_text() == str(step)
        assert latest_step(folder) == step
    assert names(folder) == ["latest", "step-10", "step-12", "verl"]
    assert names(folder / "verl") == ["global_step_10", "global_step_12", "latest_checkpointed_iteration.txt"]
    for step in (10, 12):
        assert (folder / f"step-{step}" / "config.json").read_text() == str(step)
        assert read_state(folder, step).totals == {"sampled_tokens": step}


def test_links_still_resolve_where_the_run_was_moved(folder: Path, tmp_path: Path) -> None:
    save(folder, 3)
    publish(folder, RecorderState(3, {}, {}), keep=1)
    moved = folder.rename(tmp_path / "elsewhere")
    assert (moved / "latest" / "config.json").read_text() == "3"
    assert (moved / "step-3" / "config.json").read_text() == "3"


def test_a_checkpoint_may_be_published_again(folder: Path) -> None:
    """A resumed run comes by the same step again."""
    save(folder, 3)
    publish(folder, RecorderState(3, {"seconds": 1.0}, {}), keep=1)
    publish(folder, RecorderState(3, {"seconds": 2.0}, {}), keep=1)
    assert names(folder) == ["latest", "step-3", "verl"]
    assert read_state(folder, 3).totals == {"seconds": 2.0}


def test_the_old_ones_go_only_after_the_new_one_is_linked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(folder, 1)
    publish(folder, RecorderState(1, {}, {}), keep=1)
    save(folder, 2)

    def dies(link: Path, target: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "replace_link", dies)
        with pytest.raises(KeyboardInterrupt):
            publish(folder, RecorderState(2, {}, {}), keep=1)
    assert (folder / "latest" / "config.json").read_text() == "1"
    assert latest_step(folder) == 2
    publish(folder, RecorderState(2, {}, {}), keep=1)
    assert names(folder) == ["latest", "step-2", "verl"]


def test_a_run_killed_between_verls_files_and_ours_starts_its_totals_anew(folder: Path) -> None:
    save(folder, 5)
    assert latest_step(folder) == 5
    assert read_state(folder, 5).totals == {}


@pytest.mark.parametrize("text", [None, "", "soon"])
def test_a_folder_without_a_complete_checkpoint_is_an_error(folder: Path, text: str | None) -> None:
    if text is not None:
        (folder / "verl").mkdir()
        (folder / "verl" / "latest_checkpointed_iteration.txt").write_text(text)
    with pytest.raises(CheckpointError, match=r"There is no checkpoint in .*: .* Start it anew\."):
        latest_step(folder)
