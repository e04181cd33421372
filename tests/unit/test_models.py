"""What ``--model`` names besides a model folder and a hub id: an adapter's folder, and a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from rlfactory_core.engines.adapters import CONFIG, WEIGHTS
from rlfactory_core.errors import CheckpointError, ConfigError, ModelError
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.runner.models import checkpoint_of, with_model

LORA = {"rank": 4, "alpha": 8, "dropout": 0.0, "targets": "k_proj,q_proj"}


def adapter(folder: Path, **changes: Any) -> Path:
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": "Qwen/Qwen3-0.6B",
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "k_proj"],
    }
    folder.mkdir()
    (folder / CONFIG).write_text(json.dumps({**config, **changes}))
    save_file({}, folder / WEIGHTS)
    return folder


def test_an_adapter_gives_its_base_and_the_keys_of_lora(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter")
    given = with_model({"model": str(folder), "train": {"steps": 3, "lora": {"rank": 4}}})
    assert given["model"] == "Qwen/Qwen3-0.6B"
    assert given["train"] == {"steps": 3, "lora": {**LORA, "adapter": str(folder)}}


def test_other_keys_of_lora_than_the_adapter_has_are_refused(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter")
    with pytest.raises(ConfigError, match=r"train.lora.rank=8 \(the adapter has 4\)"):
        with_model({"model": str(folder), "train": {"lora": {"rank": 8, "alpha": 8}}})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"use_dora": True}, "use_dora=True"),
        ({"peft_type": "IA3"}, "peft_type=IA3"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 8}}, "rank_pattern"),
        ({"target_modules": ".*attn.*"}, "is a pattern"),
        ({"r": "many"}, "cannot be read"),
        ({"base_model_name_or_path": "/no/such/folder"}, "'/no/such/folder' of the adapter"),
        ({"base_model_name_or_path": None}, "The base model ''"),
    ],
)
def test_an_adapter_that_cannot_be_trained_further_is_refused(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=reason):
        with_model({"model": str(adapter(tmp_path / "adapter", **changes))})


def test_an_adapter_without_weights_is_refused(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter")
    (folder / WEIGHTS).unlink()
    with pytest.raises(ModelError, match=f"has no {WEIGHTS}"):
        with_model({"model": str(folder)})


@pytest.mark.parametrize("bytes_", [b"", b"no safetensors", b"\2\0\0\0\0\0\0\0[]"])
def test_an_adapter_whose_weights_are_damaged_is_refused(bytes_: bytes, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter")
    (folder / WEIGHTS).write_bytes(bytes_)
    with pytest.raises(ModelError, match=f"cannot be read: {WEIGHTS}"):
        with_model({"model": str(folder)})


def a_run(folder: Path, steps: int = 3) -> RunFolder:
    for step in range(1, steps + 1):
        (folder / "checkpoints" / f"step-{step}").mkdir(parents=True)
        (folder / "checkpoints" / f"step-{step}" / "config.json").write_text("{}")
    (folder / "config.yaml").write_text("plugin: x")
    (folder / "checkpoints" / "latest").symlink_to(f"step-{steps}")
    return RunFolder(folder)


def test_a_run_gives_its_best_checkpoint_else_its_latest(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    assert with_model({"model": str(run.path)})["model"] == str(run.checkpoints / "step-3")
    (run.checkpoints / "best").symlink_to("step-2")
    assert with_model({"model": str(run.path)})["model"] == str(run.checkpoints / "step-2")
    assert checkpoint_of(run, "latest").name == "step-3"
    assert checkpoint_of(run, "1").name == "step-1"
    with pytest.raises(CheckpointError, match=r"no checkpoint '7'; it has step-1, step-2, step-3"):
        checkpoint_of(run, "7")


def test_a_run_without_a_checkpoint_and_a_hub_id(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("plugin: x")
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        with_model({"model": str(tmp_path)})
    assert with_model({"model": "Qwen/Qwen3-0.6B"}) == {"model": "Qwen/Qwen3-0.6B"}
