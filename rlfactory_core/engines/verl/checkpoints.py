"""verl's checkpoints in the run's folder, and a link to the Hugging Face folder in each of them.

``checkpoints/verl/global_step_N`` is verl's: shards, optimizer, data position. ``checkpoints/step-N`` links to the
policy in it, which any Hugging Face program can load, and ``checkpoints/latest`` links to the newest of those.
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
TRACKER = "latest_checkpointed_iteration.txt"  # verl writes it once a checkpoint is complete
STATE = "rlfactory_state.json"


@dataclass(frozen=True, slots=True)
class RecorderState:
    """The recorder's data for a resume: the running sums, and the step's metrics."""

    step: int
    totals: Mapping[str, float]
    metrics: Mapping[str, float]


def publish(checkpoints: Path, state: RecorderState, *, keep: int) -> None:
    """Link the checkpoint that verl has written, and only then delete all but the newest ``keep``."""
    own, step = checkpoints / FOLDER, state.step
    write_atomic(own / f"global_step_{step}" / STATE, json.dumps(asdict(state)))
    replace_link(checkpoints / f"step-{step}", f"{FOLDER}/global_step_{step}/actor/huggingface")
    replace_link(checkpoints / "latest", f"step-{step}")
    for old in _steps(own)[:-keep]:
        shutil.rmtree(own / f"global_step_{old}", ignore_errors=True)
        with suppress(FileNotFoundError):
            (checkpoints / f"step-{old}").unlink()


def latest_step(checkpoints: Path) -> int:
    """The step of the newest complete checkpoint.

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
    """The state in a checkpoint; empty if the run was killed after verl had written its files and before ours."""
    try:
        text = (checkpoints / FOLDER / f"global_step_{step}" / STATE).read_text()
    except FileNotFoundError:
        return RecorderState(step, {}, {})
    return RecorderState(**json.loads(text))


def _steps(own: Path) -> list[int]:
    found = (re.fullmatch(r"global_step_(\d+)", path.name) for path in own.glob("global_step_*"))
    return sorted(int(match[1]) for match in found if match)
