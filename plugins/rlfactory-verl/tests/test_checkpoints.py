"""verl's checkpoints under our own names: whole ones are linked, old ones go, a crash in between loses nothing."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from rlfactory_verl import checkpoints as module
from rlfactory_verl.checkpoints import RecorderState, newest_whole, publish, read_state

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
    for name in ("actor/model_world_size_1_rank_0.pt", "data.pt"):
        with zipfile.ZipFile(own / name, "w") as file:  # as torch.save does
            file.writestr("data.pkl", "weights")
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    weights = len(header).to_bytes(8, "little") + header + bytes(8)
    (own / "actor" / "huggingface" / "model.safetensors").write_bytes(weights)
    (folder / "verl" / "latest_checkpointed_iteration.txt").write_text(str(step))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_are_kept_and_linked(folder: Path) -> None:
    for step in (2, 4, 10, 12):
        save(folder, step)
        publish(folder, RecorderState(step, {"sampled_tokens": step}, {}), keep=2)
        assert (folder / "latest" / "config.json").read_text() == str(step)
        assert newest_whole(folder, print) == step
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
    assert newest_whole(folder, print) == 2
    publish(folder, RecorderState(2, {}, {}), keep=1)
    assert names(folder) == ["latest", "step-2", "verl"]


def test_a_run_killed_between_verls_files_and_ours_starts_its_totals_anew(folder: Path) -> None:
    save(folder, 5)
    assert newest_whole(folder, print) == 5
    assert read_state(folder, 5).totals == {}


@pytest.mark.parametrize("text", [None, "", "soon"])
def test_a_folder_without_a_complete_checkpoint_is_an_error(folder: Path, text: str | None) -> None:
    if text is not None:
        (folder / "verl").mkdir()
        (folder / "verl" / "latest_checkpointed_iteration.txt").write_text(text)
    with pytest.raises(CheckpointError, match=r"There is no checkpoint in .*: .* Start it anew\."):
        newest_whole(folder, print)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize(
    ("name", "damage", "says"),
    [
        ("actor/model_world_size_1_rank_0.pt", cut_off, "model_world_size_1_rank_0.pt is damaged or cut off"),
        ("actor/model_world_size_1_rank_0.pt", Path.unlink, "it has no actor/model_world_size"),
        ("actor/huggingface/model.safetensors", cut_off, "model.safetensors is cut off"),
        ("actor/huggingface/config.json", lambda path: path.write_text("{"), "config.json is no JSON"),
        ("rlfactory_state.json", lambda path: path.write_text(""), "rlfactory_state.json is empty"),
        ("data.pt", Path.unlink, "it has no data.pt"),
    ],
)
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before_it(
    folder: Path, name: str, damage: Callable[[Path], None], says: str
) -> None:
    for step in (2, 4):
        save(folder, step)
        publish(folder, RecorderState(step, {}, {}), keep=2)
    damage(folder / "verl" / "global_step_4" / name)
    said: list[str] = []
    assert newest_whole(folder, said.append) == 2
    (warning,) = said
    assert warning.startswith("warning: The checkpoint ")
    assert says in warning
    assert warning.endswith("The run goes on from the checkpoint before it.")
    assert (folder / "verl" / "latest_checkpointed_iteration.txt").read_text() == "2"  # where verl looks
    assert (folder / "latest" / "config.json").read_text() == "2"


def test_where_every_checkpoint_is_damaged_the_run_has_to_begin_anew(folder: Path) -> None:
    save(folder, 2)
    cut_off(folder / "verl" / "global_step_2" / "data.pt")
    with pytest.raises(CheckpointError, match=r"data.pt is damaged.*no older checkpoint: start the run anew"):
        newest_whole(folder, print)
