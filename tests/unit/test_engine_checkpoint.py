"""Checkpoints: whole or not there at all, whatever happens while one is written."""

from __future__ import annotations

import errno
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import make_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlfactory_core.engines.local.model.policy import RaggedPolicy
from rlfactory_core.engines.local.tiny.tiny_model import build_tokenizer
from rlfactory_core.engines.local.training import checkpoint
from rlfactory_core.engines.local.training.checkpoint import (
    TrainerState,
    checkpoints,
    load_state,
    save_checkpoint,
)
from rlfactory_core.engines.local.training.optim import Optimizer, OptimizerOptions
from rlfactory_core.errors import CheckpointError


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer(["one two three", "two three four"], 300)


@pytest.fixture
def model() -> Any:
    return make_model("qwen3")


def state(step: int) -> TrainerState:
    return TrainerState(step, {"steps": step}, {"tokens": 7.0})


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_checkpoint_is_a_hugging_face_folder_and_a_state(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    RaggedPolicy(model)  # our attention must not reach the saved config
    optimizer = Optimizer(model, OptimizerOptions(lr=1e-3, muon_lr=0.01))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    made = save_checkpoint(tmp_path, model, tokenizer, TrainerState(3, optimizer.state_dict(), {"tokens": 7.0}), keep=2)
    assert made == tmp_path / "step-3"
    assert (tmp_path / "latest").resolve() == made.resolve()
    assert "rlfactory" not in (made / "config.json").read_text()
    loaded = AutoModelForCausalLM.from_pretrained(made)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))
    back = AutoTokenizer.from_pretrained(made)
    assert back("two three").input_ids == tokenizer("two three").input_ids
    assert back.chat_template == tokenizer.chat_template
    read = load_state(made)
    assert (read.step, read.totals, read.trainable) == (3, {"tokens": 7.0}, {})
    Optimizer(loaded, OptimizerOptions(lr=1e-3, muon_lr=0.01)).load_state_dict(read.optimizer)


def test_old_checkpoints_go_and_latest_moves(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    for step in (2, 9, 10, 100):
        save_checkpoint(tmp_path, model, tokenizer, state(step), keep=2)
    assert files(tmp_path) == {"step-10", "step-100", "latest"}
    assert (tmp_path / "latest").readlink() == Path("step-100")
    assert checkpoints(tmp_path)[0].name == "step-100"  # by number, not by name


def test_the_same_step_can_be_saved_again(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    save_checkpoint(tmp_path, model, tokenizer, state(5), keep=2)
    save_checkpoint(tmp_path, model, tokenizer, TrainerState(5, {}, {"tokens": 9.0}), keep=2)
    assert load_state(checkpoints(tmp_path)[0]).totals == {"tokens": 9.0}
    assert files(tmp_path) == {"step-5", "latest"}


@pytest.mark.parametrize("victim", ["model", "tokenizer", "state", "sync", "rename"])
def test_a_full_disk_leaves_the_old_checkpoint_intact(
    tmp_path: Path, model: Any, tokenizer: Any, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path, model, tokenizer, state(1), keep=1)

    def full(*_args: Any, **_kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    target, name = {
        "model": (model, "save_pretrained"),
        "tokenizer": (tokenizer, "save_pretrained"),
        "state": (torch, "save"),
        "sync": (checkpoint.os, "fsync"),
        "rename": (Path, "rename"),
    }[victim]
    with monkeypatch.context() as patch:
        patch.setattr(target, name, full)
        with pytest.raises(CheckpointError, match=r"step 2 .*No space left.*intact") as caught:
            save_checkpoint(tmp_path, model, tokenizer, state(2), keep=1)
    assert caught.value.exit_code == 2
    assert files(tmp_path) == {"step-1", "latest"}
    assert load_state(checkpoints(tmp_path)[0]).step == 1
    AutoModelForCausalLM.from_pretrained(tmp_path / "latest")
    save_checkpoint(tmp_path, model, tokenizer, state(2), keep=1)  # room was made
    assert files(tmp_path) == {"step-2", "latest"}


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files through setrlimit")
@pytest.mark.parametrize("limit", [1_000, 20_000])
def test_files_that_really_cannot_be_written(tmp_path: Path, model: Any, tokenizer: Any, limit: int) -> None:
    """Each library has its own error for it; all of them end as ours."""
    import resource

    save_checkpoint(tmp_path, model, tokenizer, state(1), keep=1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        with pytest.raises(CheckpointError, match="could not be written"):
            save_checkpoint(tmp_path, model, tokenizer, state(2), keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert files(tmp_path) == {"step-1", "latest"}


def test_what_a_killed_process_left_behind_is_ignored_and_cleaned(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    save_checkpoint(tmp_path, model, tokenizer, state(1), keep=2)
    (tmp_path / ".step-2.partial").mkdir()
    (tmp_path / ".step-2.partial" / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".latest.partial").symlink_to("step-2")
    assert checkpoints(tmp_path)[0].name == "step-1"
    save_checkpoint(tmp_path, model, tokenizer, state(2), keep=2)
    assert files(tmp_path) == {"step-1", "step-2", "latest"}


def test_nothing_to_resume_from(tmp_path: Path) -> None:
    assert checkpoints(tmp_path / "checkpoints") == []


@pytest.mark.parametrize("content", [None, b"", b"torn"])
def test_a_torn_state_is_said(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / checkpoint.STATE_FILE).write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_state(tmp_path)
