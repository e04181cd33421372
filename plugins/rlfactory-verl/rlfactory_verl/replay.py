"""Wraps verl's replay buffer: records all trajectories, and drops spoilt ones from training."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import transfer_queue as tq

from rlfactory_core.algo import LONGEST_PAUSE_S, PAUSE_S, Counts, LostAttempts, in_vain, is_trained
from rlfactory_core.errors import TrainingError
from rlfactory_core.reporting import StoredTrajectory
from rlfactory_core.types import Group
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_verl.events import StopFile, stopped
from rlfactory_verl.rollout_request import FIELD, POSITION, Position

TRAIN = "train"  # verl's name of the partition; the other is "val"


@dataclass(frozen=True, slots=True)
class Row:
    """One trajectory in TransferQueue.

    Args:
        keys: of its sequences; only the last one has the trajectory.
    """

    keys: tuple[str, ...]
    position: Position
    stored: StoredTrajectory


class RecordingReplayBuffer:
    """Replaces verl's replay buffer; everything but `sample` is passed on to it.

    Args:
        inner: verl's, or the user's own ``trainer.v1.sampler.custom_sampler``.
        recorder: gets ``step_rows(rows)``, ``evaluation_rows(rows)`` and ``replayed(line)``.
        stop: after a stop request a spoilt batch is not replaced.
        group_size_needed: prompts with fewer unspoilt attempts are dropped: 2 if the estimator compares attempts
            (verl's GRPO would take the raw reward of a single attempt as its advantage), else 1.
        max_spoilt: the run fails after so many batches in a row that cannot be trained on.
        refill_factor: the most prompts that are played for one that is wanted, if verl filters groups.
    """

    def __init__(
        self,
        inner: Any,
        recorder: Any,
        stop: StopFile,
        *,
        group_size_needed: int,
        max_spoilt: int,
        refill_factor: int = 2,
    ) -> None:
        self._inner, self._recorder, self._stop = inner, recorder, stop
        self._needed, self._max_spoilt = group_size_needed, max_spoilt
        self._factor, self._losses = refill_factor, LostAttempts()
        self._submit: Any = getattr(inner, "refill_fn", None)
        self._filtered = getattr(inner, "filter_groups_metric", None)  # the metric by which verl filters groups

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _refill_at_most(self, batch_size: int) -> None:
        """Bound verl's replacement of groups without a difference: its V1 trainer has no bound of its own.

        Once the work is spent, verl keeps the groups of this step whatever their rewards.
        """
        self._inner.filter_groups_metric, left = self._filtered, self._factor * batch_size - batch_size
        submit = self._submit

        def refill(prompts: int) -> Any:
            nonlocal left
            left -= prompts
            if left <= 0:
                self._inner.filter_groups_metric = None
            return submit(prompts)

        self._inner.refill_fn = refill

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> Any:
        """As verl's ``ReplayBuffer.sample``; a training batch that has lost too much is replaced, after a pause.

        Raises:
            RunStopped: a stop was requested, and the batch cannot be trained on.
            TrainingError: too many such batches in a row; the message has the faults of the last one.
        """
        reason = ""
        for play in range(1, self._max_spoilt + 1):
            if self._filtered is not None:
                self._refill_at_most(batch_size)
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
                raise stopped(f"Stopped in step {global_steps}, in which too little could be used.", self._stop)
            if wrong := in_vain(row.stored.trajectory for row in rows):
                raise TrainingError(f"step {global_steps} cannot be trained on: {wrong}. The last checkpoint is kept.")
            reason = self._losses.text(row.stored.trajectory for row in rows)
            if play < self._max_spoilt:
                self._pause(global_steps, play, reason)
                self._inner.refill_fn(batch_size)
        raise TrainingError(
            f"step {global_steps}: {self._max_spoilt} batches in a row had too many masked trajectories, or sampled "
            f"nothing because their prompts fill rollout.max_tokens. {f'In the last one, {reason}. ' if reason else ''}"
            "What is left is a selection, so it is not trained on. The last checkpoint is kept: mend the cause, and go "
            "on with --resume."
        )

    def _useful(self, rows: Sequence[Row]) -> set[str]:
        """The keys of the rows that can be trained on; none if the batch has lost too many."""
        if self._losses.too_many(Counts.of(row.stored.trajectory for row in rows)):
            return set()
        groups: defaultdict[Position, list[Row]] = defaultdict(list)
        for row in rows:
            groups[row.position].append(row)
        useful = set()
        for group in groups.values():
            live = [row for row in group if not row.stored.trajectory.masked]
            attempts = tuple(row.stored.trajectory for row in group)
            trained = is_trained(Group(attempts[0].sample, attempts)) and len(live) >= self._needed
            # Without a token, because the prompt fills the token budget, some estimators divide by zero.
            if trained and any(row.stored.trajectory.num_sampled for row in live):
                useful |= {key for row in live for key in row.keys}
        return useful

    def _pause(self, step: int, play: int, reason: str) -> None:
        """What masked so many trajectories may be over afterwards."""
        pause_s = backoff_s(play, PAUSE_S, LONGEST_PAUSE_S, least=1.0) if reason else 0.0
        self._recorder.replayed(
            f"step {step}: {reason or 'nothing was sampled'}. No update; the next batch in {pause_s:.0f} s."
        )
        end = time.monotonic() + pause_s
        while not self._stop.requested and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))

    def _clear(self, batch: Any, dropped: list[str]) -> None:
        """Delete rows; verl fills a batch that has become too small with rows of padding."""
        if dropped:
            tq.kv_clear(keys=dropped, partition_id=batch.partition_id)


def fetch_rows(batch: Any) -> list[Row]:
    """The trajectories of a batch's keys, in their order."""
    if not batch.keys:
        return []
    extras = extra_fields(batch.keys, batch.partition_id)
    keys: defaultdict[str, list[str]] = defaultdict(list)
    for key in batch.keys:  # {uid}_{attempt}_{number of the sequence}
        keys[key.rpartition("_")[0]].append(key)
    return [
        Row(tuple(keys[key.rpartition("_")[0]]), Position(**extra[POSITION]), StoredTrajectory.from_line(extra[FIELD]))
        for key, extra in zip(batch.keys, extras, strict=True)
        if extra[FIELD]
    ]


def extra_fields(keys: Sequence[str], partition: str) -> list[dict[str, Any]]:
    """verl's ``extra_fields`` of these keys, in their order, which have our entries, too."""
    data = tq.kv_batch_get(keys=list(keys), partition_id=partition, select_fields=["extra_fields"])
    found = data["extra_fields"]  # TransferQueue gives its own list type if a batch has no tensor
    return list(found.tolist() if hasattr(found, "tolist") else found)
