"""verl's checkpoints in the run's folder, and each of them as a Hugging Face folder under our own name.

``checkpoints/verl/global_step_N`` is verl's: shards, optimizer, data position. ``checkpoints/step-N`` is a link to the
whole policy in it, which any Hugging Face program can load, and ``checkpoints/latest`` to the newest of those.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rlfactory_core.errors import CheckpointError
from rlfactory_core.reporting.folder import write_atomic

FOLDER = "verl"
TRACKER = "latest_checkpointed_iteration.txt"  # verl writes it when a checkpoint is whole
TOTALS = "rlfactory_totals.json"


def publish(checkpoints: Path, step: int, totals: Mapping[str, float], *, keep: int) -> None:
    """After verl has written a checkpoint: link it, and only then delete all but the newest ``keep``."""
    own = checkpoints / FOLDER
    write_atomic(own / f"global_step_{step}" / TOTALS, json.dumps(dict(totals)))
    _link(checkpoints / f"step-{step}", f"{FOLDER}/global_step_{step}/actor/huggingface")
    _link(checkpoints / "latest", f"step-{step}")
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


def read_totals(checkpoints: Path, step: int) -> dict[str, float]:
    """The running sums as they were at a checkpoint; empty where the run died between verl's files and ours."""
    try:
        totals: dict[str, float] = json.loads((checkpoints / FOLDER / f"global_step_{step}" / TOTALS).read_text())
    except FileNotFoundError:
        return {}
    return totals


def _steps(own: Path) -> list[int]:
    found = (re.fullmatch(r"global_step_(\d+)", path.name) for path in own.glob("global_step_*"))
    return sorted(int(match[1]) for match in found if match)


def _link(link: Path, target: str) -> None:
    fresh = link.with_name(f".{link.name}.partial")
    with suppress(FileNotFoundError):
        fresh.unlink()
    fresh.symlink_to(target, target_is_directory=True)
    os.replace(fresh, link)
