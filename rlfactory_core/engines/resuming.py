"""From which checkpoint a run goes on: the newest that can be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rlfactory_core.errors import CheckpointError, ModelError

Checkpoint = TypeVar("Checkpoint")
Loaded = TypeVar("Loaded")


def newest_readable(
    found: Sequence[Checkpoint], load: Callable[[Checkpoint], Loaded], say: Callable[[str], None]
) -> tuple[Checkpoint, Loaded]:
    """The first checkpoint of which ``load`` raises no error, and what it returns.

    Args:
        found: at least one, the newest first.
        say: is told of each that is left out.

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
