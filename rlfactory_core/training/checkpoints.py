"""Checkpoints: a Hugging Face folder and the trainer's state, written so that a crash or a full disk destroys nothing.

A checkpoint is written under a temporary name, synced to disk and renamed. Only then ``latest`` is changed and old
checkpoints are deleted. The trainer's state stands beside the folder, which can be uploaded as it is. No random state
is saved: every seed follows from the run's seed, the step and the sample.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rlfactory_core.engines.base import Checkpoint, Engine
from rlfactory_core.errors import CheckpointError, ModelError
from rlfactory_core.reporting.folder import replace_link

STATES = "resume"  # the folder of the trainer's states
_FORMER_STATE = "trainer_state.pt"  # where runs of earlier versions have it, in the checkpoint's folder
LATEST = "latest"
Loaded = TypeVar("Loaded")
Place = TypeVar("Place")  # of a checkpoint
BEST = "best"  # a link to the checkpoint with the best held-out result of the evaluations between steps


def save_checkpoint(folder: Path, step: int, engine: Engine, run: Mapping[str, Any], *, keep: int) -> Path:
    """Let the engine write ``step-N`` and its state, point ``latest`` at it, and delete all but the newest ``keep``.

    Args:
        run: see `Engine.save`.

    Raises:
        CheckpointError: the disk is full or not writable; earlier checkpoints are as they were.
    """
    final = folder / f"step-{step}"
    temporary = folder / f".{final.name}.partial"
    earlier = next(iter(checkpoints(folder)), None)
    made = Checkpoint(temporary, _state_file(temporary), earlier)
    try:
        _remove(temporary)
        temporary.mkdir(parents=True)
        made.state.parent.mkdir(exist_ok=True)
        engine.save(made, run)
        _sync(temporary)
        _sync(made.state)
        _remove(final)
        made.state.replace(_state_file(final))
        temporary.rename(final)
        replace_link(folder / LATEST, final.name)
    except Exception as error:  # torch, safetensors and tokenizers each have an error of their own for a full disk
        _remove(temporary)
        if not final.is_dir():
            _remove(final)  # its state
        raise CheckpointError(
            f"The checkpoint of step {step} could not be written to {folder}: {error}. Earlier checkpoints are "
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


def saved(folder: Path) -> Checkpoint:
    """The checkpoint in this folder."""
    state = _state_file(folder)
    return Checkpoint(folder, state if state.exists() else folder / _FORMER_STATE)


def newest_readable(
    found: Sequence[Place], load: Callable[[Place], Loaded], say: Callable[[str], None]
) -> tuple[Place, Loaded]:
    """The first checkpoint that ``load`` can read, and what ``load`` returns.

    Args:
        found: at least one, the newest first.
        say: shows a warning for each checkpoint that cannot be read.

    Raises:
        CheckpointError: none can be read.
    """
    checkpoint, *older = found
    try:
        return checkpoint, load(checkpoint)
    except (CheckpointError, ModelError) as error:
        if not older:
            raise CheckpointError(f"{error} There is no older checkpoint: start the run anew.") from error
        say(f"warning: {error} The run goes on from the checkpoint before it.")
    return newest_readable(older, load, say)


def none_yet(checkpoints: Path) -> CheckpointError:
    """The error of a run that has no checkpoint."""
    return CheckpointError(
        f"There is no checkpoint in {checkpoints}: the run ended before its first one. Start it anew."
    )


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
