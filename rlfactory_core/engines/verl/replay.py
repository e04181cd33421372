"""Wraps verl's replay buffer: records all trajectories, and drops spoilt ones from training."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import transfer_queue as tq

from rlfactory_core.engines.verl.events import StopFile, stopped
from rlfactory_core.engines.verl.rollout_request import FIELD, POSITION, Position
from rlfactory_core.errors import TrainingError
from rlfactory_core.reporting.trajectories import StoredTrajectory

TRAIN = "train"  # verl's name of the partition; the other is "val"


@dataclass(frozen=True, slots=True)
class Row:
    """One trajectory in TransferQueue."""

    key: str
    position: Position
    stored: StoredTrajectory


class RecordingReplayBuffer:
    """Replaces verl's replay buffer; everything but `sample` is passed on to it.

    Args:
        inner: verl's, or the user's own ``trainer.v1.sampler.custom_sampler``.
        recorder: gets ``step_rows(rows)`` and ``evaluation_rows(rows)``.
        stop: after a stop request a spoilt batch is not replaced.
        group_size_needed: prompts with fewer unspoilt attempts are dropped: 2 if the estimator compares attempts
            (verl's GRPO would take the raw reward of a single attempt as its advantage), else 1.
        max_spoilt: the run fails after so many batches in a row without a usable trajectory.
    """

    def __init__(self, inner: Any, recorder: Any, stop: StopFile, *, group_size_needed: int, max_spoilt: int) -> None:
        self._inner, self._recorder, self._stop = inner, recorder, stop
        self._needed, self._max_spoilt = group_size_needed, max_spoilt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> Any:
        """As verl's ``ReplayBuffer.sample``; a training batch in which everything is spoilt is replaced.

        Raises:
            RunStopped: a stop was requested, and the batch has no usable trajectory.
            TrainingError: too many such batches in a row; the message has the most frequent fault.
        """
        for _ in range(self._max_spoilt):
            batch, metrics = self._inner.sample(
                global_steps=global_steps, partition_id=partition_id, batch_size=batch_size
            )
            rows = fetch_rows(batch)
            if not rows:
                raise TrainingError(
                    f"step {global_steps}: not one trajectory came back from verl's workers; see their logs."
                )
            if partition_id != TRAIN:
                self._recorder.evaluation_rows(rows)
                return batch, metrics
            self._recorder.step_rows(rows)
            useful = self._useful(rows)
            self._clear(batch, [key for key in batch.keys if key not in useful])
            if useful:
                return batch.select_keys([key for key in batch.keys if key in useful]), metrics
            if self._stop.requested:  # perhaps for the reason that spoils them, such as a spent budget
                raise stopped(f"Stopped in step {global_steps}, in which nothing could be used.", self._stop)
            self._inner.refill_fn(batch_size)
        raise TrainingError(
            f"step {global_steps}: in {self._max_spoilt} batches in a row every trajectory was spoilt by a fault, "
            "or sampled nothing because its prompt fills rollout.max_tokens. "
            f"{_most_common_fault(rows)} The last checkpoint is kept: fix the cause and go on with --resume."
        )

    def _useful(self, rows: Sequence[Row]) -> set[str]:
        live: defaultdict[Position, list[Row]] = defaultdict(list)
        for row in rows:
            if not row.stored.trajectory.masked:
                live[row.position].append(row)
        # A prompt that fills the token budget has attempts without a token, which divide by zero in some estimators.
        return {
            row.key
            for found in live.values()
            if len(found) >= self._needed and any(row.stored.trajectory.num_sampled for row in found)
            for row in found
        }

    def _clear(self, batch: Any, dropped: list[str]) -> None:
        """Delete rows; verl fills a batch that has become too small with rows of padding."""
        if dropped:
            tq.kv_clear(keys=dropped, partition_id=batch.partition_id)


def fetch_rows(batch: Any) -> list[Row]:
    """The trajectories of a batch's keys, in their order."""
    if not batch.keys:
        return []
    fields = ["extra_fields"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    found = data["extra_fields"]  # TransferQueue gives its own list type if a batch has no tensor
    extras = found.tolist() if hasattr(found, "tolist") else list(found)
    return [
        Row(key, Position(**extra[POSITION]), StoredTrajectory.from_line(extra[FIELD]))
        for key, extra in zip(batch.keys, extras, strict=True)
    ]


def _most_common_fault(rows: Sequence[Row]) -> str:
    faults = Counter(f"{fault.source}: {fault.message}" for row in rows for fault in row.stored.trajectory.faults)
    return f"Most often: {faults.most_common(1)[0][0]}." if faults else ""
