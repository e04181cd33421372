"""Checkpoints: a Hugging Face folder and the trainer's state, written so that a crash or a full disk destroys nothing.

A checkpoint is written under a temporary name, synced to disk and renamed. Only then ``latest`` is changed and old
checkpoints are deleted. The trainer's state stands beside the folder, which can be uploaded as it is. No random state
is saved: every seed follows from the run's seed, the step and the sample.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlfactory_core.engines.exports import NOWHERE, Origin, complete
from rlfactory_core.engines.local.model.lora import merged_state_dict
from rlfactory_core.errors import CheckpointError
from rlfactory_core.reporting.folder import replace_link

STATES = "resume"  # the folder of the trainer's states
_FORMER_STATE = "trainer_state.pt"  # where runs of earlier versions have it, in the checkpoint's folder
LATEST = "latest"
BEST = "best"  # a link to the checkpoint with the best held-out result of the evaluations between steps


@dataclass(frozen=True, slots=True)
class TrainerState:
    """What a resume needs besides the weights."""

    step: int  # the number of finished steps
    optimizer: dict[str, Any]
    totals: dict[str, float]  # running sums for the summary: seconds, tokens, faults
    trainable: dict[str, Tensor] = field(default_factory=dict)  # of LoRA: the adapters, for the start model
    pending: list[int] = field(default_factory=list)  # positions of prompts that were begun and not trained
    loop: dict[str, Any] = field(default_factory=dict)  # of the training loop, see `Trainer.state`
    critic: dict[str, Any] = field(default_factory=dict)  # of the advantage gae


def save_checkpoint(
    folder: Path,
    model: Any,
    tokenizer: Any,
    state: TrainerState,
    *,
    keep: int,
    origin: Origin = NOWHERE,
    beside: Callable[[Path], None] = lambda _folder: None,
) -> Path:
    """Write ``step-N`` and its state, point ``latest`` at it and delete all but the newest ``keep``.

    Args:
        beside: writes further files into it.

    Raises:
        CheckpointError: the disk is full or not writable; earlier checkpoints are as they were.
    """
    final = folder / f"step-{state.step}"
    temporary = folder / f".{final.name}.partial"
    found = checkpoints(folder)
    origin = replace(origin, fallback=found[0] if found else None)
    try:
        _remove(temporary)
        write_model(temporary, model, tokenizer, origin, beside)
        _sync(temporary)
        partial_state = _state_file(temporary)
        partial_state.parent.mkdir(exist_ok=True)
        torch.save({item.name: getattr(state, item.name) for item in fields(state)}, partial_state)
        _sync(partial_state)
        _remove(final)
        partial_state.replace(_state_file(final))
        temporary.rename(final)
        replace_link(folder / LATEST, final.name)
    except Exception as error:  # torch, safetensors and tokenizers each have an error of their own for a full disk
        _remove(temporary)
        if not final.is_dir():
            _remove(final)  # its state
        raise CheckpointError(
            f"The checkpoint of step {state.step} could not be written to {folder}: {error}. Earlier checkpoints are "
            "intact. Make room (or lower checkpoint.keep) and go on with --resume."
        ) from error
    _prune(folder, keep)
    return final


def mark_best(folder: Path, step: int, *, keep: int) -> None:
    """Point ``best`` at the checkpoint of a step, which is kept beside the newest ``keep``."""
    replace_link(folder / BEST, f"step-{step}")
    _prune(folder, keep)


def _prune(folder: Path, keep: int) -> None:
    best = (folder / BEST).resolve() if (folder / BEST).is_symlink() else None
    for old in checkpoints(folder)[keep:]:
        if old.resolve() != best:
            _remove(old)


def write_model(
    folder: Path,
    model: Any,
    tokenizer: Any,
    origin: Origin = NOWHERE,
    beside: Callable[[Path], None] = lambda _folder: None,
) -> None:
    """A Hugging Face folder: config, weights, tokenizer with its chat template; LoRA is merged into the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, state_dict=merged_state_dict(model))
    tokenizer.save_pretrained(folder)
    beside(folder)
    complete(folder, origin)


def checkpoints(folder: Path) -> list[Path]:
    """The newest first."""
    found = (path for path in folder.glob("step-*") if path.is_dir() and path.name.removeprefix("step-").isdigit())
    return sorted(found, key=lambda path: -int(path.name.removeprefix("step-")))


def roll_back(folder: Path, step: int) -> int | None:
    """Delete the checkpoints after a step; see `EngineTraits.roll_back`."""
    found = checkpoints(folder)
    good = [path for path in found if int(path.name.removeprefix("step-")) <= step]
    if not good:
        return None
    replace_link(folder / LATEST, good[0].name)
    for later in found[: -len(good)]:
        _remove(later)
    if (folder / BEST).is_symlink() and not (folder / BEST).exists():
        (folder / BEST).unlink()
    return int(good[0].name.removeprefix("step-"))


def load_state(checkpoint: Path) -> TrainerState:
    """Raises `CheckpointError` if the file is missing or damaged."""
    file = _state_file(checkpoint)
    try:
        found = file if file.exists() else checkpoint / _FORMER_STATE
        return TrainerState(**torch.load(found, map_location="cpu", weights_only=True))
    except Exception as error:  # a damaged pickle can raise any error
        raise CheckpointError(f"The trainer's state in {checkpoint} cannot be read: {error}") from error


def _state_file(checkpoint: Path) -> Path:
    return checkpoint.parent / STATES / f"{checkpoint.name}.pt"


def _sync(written: Path) -> None:
    """Flush to disk, so that the files are whole even if the power fails after the rename."""
    for path in [*written.rglob("*"), written]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint, ignore_errors=True)
    _state_file(checkpoint).unlink(missing_ok=True)
