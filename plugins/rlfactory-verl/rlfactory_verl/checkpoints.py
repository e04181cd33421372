"""verl's checkpoints in the run's folder, and a link to the Hugging Face folder in each of them.

``checkpoints/verl/global_step_N`` is verl's: shards, optimizer, data position. ``checkpoints/step-N`` links to the
policy in it, which any Hugging Face program can load, and ``checkpoints/latest`` links to the newest of those.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from rlfactory_core.engines import EngineRun, Origin, complete
from rlfactory_core.errors import CheckpointError
from rlfactory_core.reporting import replace_link, write_atomic
from rlfactory_core.training import newest_readable, none_yet
from rlfactory_verl.vision import shows_images

FOLDER = "verl"
TRACKER = "latest_checkpointed_iteration.txt"  # verl writes it once a checkpoint is complete
STATE = "rlfactory_state.json"
_NEEDED = ("data.pt", "actor/huggingface/config.json", "actor/model_world_size_*_rank_*.pt")


@dataclass(frozen=True, slots=True)
class RecorderState:
    """The recorder's data for a resume: the running sums, the step's metrics, and what `Until` knows."""

    step: int
    totals: Mapping[str, float]
    metrics: Mapping[str, float]
    until: Mapping[str, Any] = field(default_factory=dict)


def policy_folder(checkpoints: Path, step: int) -> Path:
    """The policy that verl has saved, in Hugging Face layout."""
    return checkpoints / FOLDER / f"global_step_{step}" / "actor" / "huggingface"


def complete_policy(folder: Path, run: EngineRun, model: str) -> None:
    """Bring the files of the start model into the policy's folder, see `exports`.

    Args:
        model: from which verl has started: a folder or a hub id.
    """
    from rlfactory_core.engines import load_tokenizer

    if not (folder / "config.json").exists():  # another machine of the cluster has written it
        return
    images = shows_images(run.config.chat, run.config.model)
    chat = run.make_chat(load_tokenizer(str(folder)), images=images)
    complete(folder, Origin(model, tuple(chat.stop_token_ids)))


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


def newest_whole(checkpoints: Path, say: Callable[[str], None]) -> int:
    """The step of the newest checkpoint that can be read. Older than verl's newest, it takes that one's place.

    Raises:
        CheckpointError: there is none.
    """
    own = checkpoints / FOLDER
    try:
        newest = int((own / TRACKER).read_text())
    except (OSError, ValueError) as error:
        raise none_yet(checkpoints) from error
    steps = [newest, *(step for step in reversed(_steps(own)) if step < newest)]
    step = newest_readable(steps, lambda step: _check(own / f"global_step_{step}"), say)[0]
    if step != newest:
        write_atomic(own / TRACKER, str(step))  # verl continues from the step that it names
        replace_link(checkpoints / "latest", f"step-{step}")
    return step


def _check(checkpoint: Path) -> None:
    """Raises `CheckpointError` if a file is missing, empty or cut off."""
    for pattern in _NEEDED:
        if not any(checkpoint.glob(pattern)):
            raise CheckpointError(f"The checkpoint {checkpoint} cannot be read: it has no {pattern}.")
    for path in checkpoint.rglob("*"):
        problem = _problem(path) if path.is_file() else None
        if problem:
            raise CheckpointError(f"The checkpoint {checkpoint} cannot be read: {path.name} {problem}.")


def _problem(path: Path) -> str | None:
    """Why a file cannot be whole; None if nothing shows it. Its weights are not read."""
    if not path.stat().st_size:
        return "is empty"
    if path.suffix == ".pt" and not is_zipfile(path):  # torch's format, whose directory is at the end of the file
        return "is damaged or cut off"
    if path.suffix == ".json" and not _is_json(path):
        return "is no JSON"
    return "is cut off" if path.suffix == ".safetensors" and not _is_safetensors(path) else None


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return True


def _is_safetensors(path: Path) -> bool:
    """Whether the file's size is what its header says: 8 bytes of length, the JSON header, the tensors."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length <= path.stat().st_size else {}
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
        return bool(path.stat().st_size == 8 + length + max(ends))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return False


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
