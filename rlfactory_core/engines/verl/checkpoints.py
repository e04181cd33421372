"""verl's checkpoints in the run's folder, and each of them as a Hugging Face folder under our own name.

``checkpoints/verl/global_step_N`` is verl's: shards, optimizer, data position. ``checkpoints/step-N`` is a link to the
whole policy in it, which any Hugging Face program can load, and ``checkpoints/latest`` to the newest of those.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rlfactory_core.errors import CheckpointError
from rlfactory_core.reporting.folder import replace_link, write_atomic

FOLDER = "verl"
TRACKER = "latest_checkpointed_iteration.txt"  # verl writes it when a checkpoint is whole
STATE = "rlfactory_state.json"


@dataclass(frozen=True, slots=True)
class RecorderState:
    """What a resumed run needs of the record keeping: the running sums, and the step's metrics."""

    step: int
    totals: Mapping[str, float]
    metrics: Mapping[str, float]


def publish(checkpoints: Path, state: RecorderState, *, keep: int) -> None:
    """After verl has written a checkpoint: link it, and only then delete all but the newest ``keep``."""
    own, step = checkpoints / FOLDER, state.step
    write_atomic(own / f"global_step_{step}" / STATE, json.dumps(asdict(state)))
    replace_link(checkpoints / f"step-{step}", f"{FOLDER}/global_step_{step}/actor/huggingface")
    replace_link(checkpoints / "latest", f"step-{step}")
    for old in _steps(own)[:-keep]:
        shutil.rmtree(own / f"global_step_{old}", ignore_errors=True)
        with suppress(FileNotFoundError):
            (checkpoints / f"step-{old}").unlink()


def latest_step(checkpoints: Path) -> int:
    """The newest whole checkpoint's.

    Raises:
        CheckpointError: there is none.
    """
    try:
        return int((checkpoints / FOLDER / TRACKER).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"There is no checkpoint in {checkpoints}: the run ended before its first one. Start it anew."
        ) from error


def read_state(checkpoints: Path, step: int) -> RecorderState:
    """Of a checkpoint; an empty one where the run died between verl's files and ours."""
    try:
        text = (checkpoints / FOLDER / f"global_step_{step}" / STATE).read_text()
    except FileNotFoundError:
        return RecorderState(step, {}, {})
    return RecorderState(**json.loads(text))


def _steps(own: Path) -> list[int]:
    found = (re.fullmatch(r"global_step_(\d+)", path.name) for path in own.glob("global_step_*"))
    return sorted(int(match[1]) for match in found if match)
