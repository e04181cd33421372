"""Writes trajectories as traces for other trainers: ``messages`` and ``tools`` of OpenAI, in JSON lines or parquet.

Each row is read back by `read_trace` before it is written, so that what another trainer gets can be learnt from here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from rlfactory_core.cache import write_atomically
from rlfactory_core.errors import DataError, MissingExtraError, UsageError
from rlfactory_core.reporting.conversations import conversations
from rlfactory_core.reporting.trajectories import json_text
from rlfactory_core.tasks.trace_tools import no_json
from rlfactory_core.tasks.traces import read_trace
from rlfactory_core.types import Trajectory

JSONL, PARQUET = ".jsonl", ".parquet"


@dataclass(slots=True)
class Exported:
    """What has been written.

    Args:
        left_out: why attempts were not.
    """

    rows: list[Mapping[str, Any]] = field(default_factory=list)
    attempts: int = 0
    left_out: list[str] = field(default_factory=list)


def check_target(path: Path) -> None:
    """Refuse a file before anything is read.

    Raises:
        UsageError: its name has another ending, or it exists.
        MissingExtraError: it is parquet, and pyarrow is not installed.
    """
    if path.suffix not in (JSONL, PARQUET):
        raise UsageError(f"{path} ends in {path.suffix or 'nothing'!r}; expected {JSONL} or {PARQUET}.")
    if path.exists():
        raise UsageError(f"{path} exists; choose another name, or remove it.")
    if path.suffix == PARQUET:
        _pyarrow(path)


def export_traces(trajectories: Iterable[Trajectory], path: Path) -> Exported:
    """Write the conversations of all trajectories that no fault masks, one a row; see `conversations`.

    Raises:
        UsageError, MissingExtraError: as `check_target`.
    """
    check_target(path)
    found = Exported()
    for each in trajectories:
        try:
            rows = _rows(each)
        except DataError as error:
            found.left_out.append(str(error))
            continue
        found.attempts += 1
        found.rows += rows
    if path.suffix == JSONL:
        data = "".join(f"{json_text(row)}\n" for row in found.rows).encode()
    else:
        data = _parquet(path, found.rows)
    write_atomically(path, data)
    return found


def _rows(trajectory: Trajectory) -> list[Mapping[str, Any]]:
    where = f"sample '{trajectory.sample.id}', attempt {trajectory.attempt}"
    if trajectory.masked:
        raise DataError(f"{where}: a fault masks it.")
    if any(turn.images for turn in trajectory.turns):
        raise DataError(f"{where}: it shows images, which such a file does not hold.")
    rows: list[Mapping[str, Any]] = [
        {**each.as_openai(), "sample": trajectory.sample.id, "reward": trajectory.reward}
        for each in conversations(trajectory)
    ]
    if not rows:
        raise DataError(f"{where}: it has no turn that is complete.")
    for row in rows:
        if (wrong := no_json(row)) is not None:
            raise DataError(f"{where}: {wrong}.")
        read_trace(row, where)
    return rows


def _parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Tools are JSON in a text, since Arrow would give all schemas of the file the same keys."""
    pa, pq = _pyarrow(path)
    out = BytesIO()
    listed = [{**row, "tools": json.dumps(row["tools"], ensure_ascii=False)} for row in rows]
    pq.write_table(pa.Table.from_pylist(listed), out)
    return out.getvalue()


def _pyarrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError(f"Writing {path} needs pyarrow: python -m pip install pyarrow") from error
    return pa, pq
