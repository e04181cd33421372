"""Spoilt trajectories never reach verl's update; a batch with no other is replaced, up to a limit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from reporting_examples import decode, infra_fault, make_trajectory
from rlfactory_verl.events import StopFile
from rlfactory_verl.rollout_request import FIELD, POSITION, Position

from rlfactory_core.errors import RunStopped, TrainingError
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.types import Fault, FaultKind, StopReason

tq = pytest.importorskip("transfer_queue", reason="the verl engine needs it")
from rlfactory_verl import replay  # noqa: E402
from rlfactory_verl.replay import RecordingReplayBuffer, Row  # noqa: E402

VERIFIER = Fault(FaultKind.VERIFIER, "judge", "no score within 60 s")


class Queue:
    """The used part of TransferQueue: values by key until they are cleared."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.cleared: list[str] = []

    def kv_batch_get(self, keys: Sequence[str], partition_id: str, select_fields: Sequence[str]) -> dict[str, Any]:
        assert select_fields == ["extra_fields"]
        return {"extra_fields": [self.values[key] for key in keys]}

    def kv_clear(self, keys: Sequence[str], partition_id: str) -> None:
        self.cleared += keys
        for key in keys:
            del self.values[key]


class Inner:
    """verl's replay buffer: gives the next of its batches."""

    def __init__(self, queue: Queue, *batches: dict[str, Any], partition: str = "train") -> None:
        self.poll_interval = 2.0
        self.refilled: list[int] = []
        self._batches = iter(batches)
        self._queue, self._partition = queue, partition

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, float]]:
        rows = next(self._batches)
        for key, trajectory in rows.items():
            line = StoredTrajectory.of(trajectory, decode).to_line()
            self._queue.values[key] = {FIELD: line, POSITION: {"part": "train", "step": 1, "index": ord(key[0])}}
        return tq.KVBatchMeta(list(rows), [{"seq_len": 1}] * len(rows), partition_id), {"of": global_steps}

    def refill_fn(self, count: int) -> None:
        self.refilled.append(count)


class Heard:
    """A recorder that stores the rows that it gets."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.steps: list[list[Row]] = []
        self.evaluations: list[list[Row]] = []

    def replayed(self, text: str) -> None:
        self.said.append(text)

    def step_rows(self, rows: list[Row]) -> None:
        self.steps.append(rows)

    def evaluation_rows(self, rows: list[Row]) -> None:
        self.evaluations.append(rows)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    fake = Queue()
    monkeypatch.setattr(replay, "PAUSE_S", 0.0)
    monkeypatch.setattr(replay, "tq", SimpleNamespace(kv_batch_get=fake.kv_batch_get, kv_clear=fake.kv_clear))
    return fake


def rows(prompt: str, *faults: Fault | None) -> dict[str, Any]:
    """A prompt's attempts; those with a fault are spoilt."""
    found = {}
    for attempt, fault in enumerate(faults):
        spoilt = () if fault is None else (fault,)
        found[f"{prompt}_{attempt}_0"] = make_trajectory(attempt / 4, attempt=attempt, faults=spoilt)
    return found


def recording(
    inner: Inner, *, needed: int = 2, most: int = 3, stop: Path = Path("unasked")
) -> tuple[RecordingReplayBuffer, Heard]:
    heard = Heard()
    return RecordingReplayBuffer(inner, heard, StopFile(stop), group_size_needed=needed, max_spoilt=most), heard


def take(made: RecordingReplayBuffer, partition: str = "train") -> Any:
    return made.sample(global_steps=7, partition_id=partition, batch_size=4)


def test_spoilt_trajectories_are_dropped_and_cleared_but_recorded(queue: Queue) -> None:
    inner = Inner(queue, rows("a", None, infra_fault(), None) | rows("b_c", None, None, VERIFIER))  # a third
    made, heard = recording(inner)
    batch, metrics = take(made)
    assert batch.keys == ["a_0_0", "a_2_0", "b_c_0_0", "b_c_1_0"]
    assert batch.partition_id == "train"
    assert len(batch.tags) == 4
    assert queue.cleared == ["a_1_0", "b_c_2_0"]
    assert sorted(queue.values) == sorted(batch.keys)
    assert metrics == {"of": 7}
    ((*recorded,),) = heard.steps
    assert [(row.keys, row.position.index, row.stored.trajectory.masked) for row in recorded[:3]] == [
        (("a_0_0",), ord("a"), False),
        (("a_1_0",), ord("a"), True),
        (("a_2_0",), ord("a"), False),
    ]
    assert {row.position for row in recorded[3:]} == {Position("train", 1, ord("b"))}
    assert inner.refilled == []


def test_faults_of_the_policy_spoil_nothing(queue: Queue) -> None:
    policy = Fault(FaultKind.POLICY, "search", "no such tool")
    tool = Fault(FaultKind.TOOL, "search", "no results")
    made, _ = recording(Inner(queue, rows("a", policy, tool)))
    assert len(take(made)[0]) == 2
    assert queue.cleared == []


def test_a_single_unspoilt_attempt_is_dropped_if_the_estimator_compares_attempts(queue: Queue) -> None:
    made, _ = recording(Inner(queue, rows("a", None) | rows("b", None, None)), needed=2)
    assert take(made)[0].keys == ["b_0_0", "b_1_0"]
    assert queue.cleared == ["a_0_0"]


def test_a_single_unspoilt_attempt_is_kept_for_a_critic(queue: Queue) -> None:
    made, _ = recording(Inner(queue, rows("a", None) | rows("b", None, None)), needed=1)
    assert take(made)[0].keys == ["a_0_0", "b_0_0", "b_1_0"]


def test_a_group_of_which_more_than_a_third_is_spoilt_is_dropped(queue: Queue) -> None:
    made, _ = recording(Inner(queue, rows("a", None, None, VERIFIER, VERIFIER, None) | rows("b", None, None)), needed=1)
    assert take(made)[0].keys == ["b_0_0", "b_1_0"]


def test_a_batch_of_which_more_than_a_third_is_spoilt_is_replaced(queue: Queue) -> None:
    inner = Inner(queue, rows("a", VERIFIER, VERIFIER) | rows("b", None, None, None), rows("c", None, None))
    made, heard = recording(inner)
    assert take(made)[0].keys == ["c_0_0", "c_1_0"]
    assert heard.said == [
        "step 7: 2 of 5 trajectories were masked: judge 2 (no score within 60 s). No update; the next batch in 0 s."
    ]


def test_a_batch_that_loses_those_that_called_a_tool_is_replaced_though_they_are_few(queue: Queue) -> None:
    batch = {f"a_{n}_0": make_trajectory(faults=(infra_fault(),) if n < 3 else (), calls=n < 3) for n in range(30)}
    inner = Inner(queue, batch, rows("c", None, None))
    made, heard = recording(inner)
    assert take(made)[0].keys == ["c_0_0", "c_1_0"]
    assert "of the last 3 that called search, 3 were lost. No update" in heard.said[0]


def test_prompts_that_fill_the_token_budget_are_dropped(queue: Queue) -> None:
    full = {
        key: replace(trajectory, turns=(), stop=StopReason.LENGTH) for key, trajectory in rows("a", None, None).items()
    }
    made, _ = recording(Inner(queue, full | rows("b", None, None)), needed=1)
    assert take(made)[0].keys == ["b_0_0", "b_1_0"]
    assert queue.cleared == ["a_0_0", "a_1_0"]


def test_a_batch_without_a_usable_trajectory_is_replaced(queue: Queue) -> None:
    inner = Inner(queue, rows("a", VERIFIER, VERIFIER), rows("b", None, VERIFIER), rows("c", None, None))
    made, heard = recording(inner, most=3)
    assert take(made)[0].keys == ["c_0_0", "c_1_0"]
    assert inner.refilled == [4, 4]
    assert [len(step) for step in heard.steps] == [2, 2, 2]
    assert set(queue.values) == {"c_0_0", "c_1_0"}


def test_the_number_of_replaced_batches_is_limited(queue: Queue) -> None:
    down = infra_fault()
    inner = Inner(queue, rows("a", down, VERIFIER), rows("b", VERIFIER, down, down), rows("c", None, None))
    made, heard = recording(inner, most=2)
    with pytest.raises(TrainingError) as raised:
        take(made)
    text = str(raised.value)
    assert "step 7: 2 batches in a row had too many masked trajectories" in text
    assert "3 of 3 trajectories were masked: search 2 (no answer within 30 s), judge 1 (no score within 60 s)" in text
    assert "--resume" in text
    assert len(heard.steps) == 2
    assert queue.values == {}


def test_no_batch_is_replaced_after_a_stop_request(queue: Queue, tmp_path: Path) -> None:
    inner = Inner(queue, rows("a", VERIFIER, None) | rows("b", None, None), rows("c", VERIFIER, VERIFIER))  # a quarter
    made, heard = recording(inner, stop=tmp_path)
    StopFile(tmp_path).ask("The judge's tokens are spent.")
    assert take(made)[0].keys == ["b_0_0", "b_1_0"]  # what can be used is used
    with pytest.raises(
        RunStopped, match=r"^Stopped in step 7, in which too little could be used\. The judge's tokens are"
    ):
        take(made)
    assert inner.refilled == []
    assert len(heard.steps) == 2


def test_an_empty_batch_is_an_error(queue: Queue) -> None:
    made, _ = recording(Inner(queue, {}))
    with pytest.raises(TrainingError, match="step 7: not one trajectory came back"):
        take(made)


def test_no_trajectory_of_an_evaluation_is_dropped(queue: Queue) -> None:
    made, heard = recording(Inner(queue, rows("a", None, VERIFIER) | rows("b", infra_fault()), partition="val"))
    batch, _ = take(made, "val")
    assert batch.keys == ["a_0_0", "a_1_0", "b_0_0"]
    assert queue.cleared == []
    assert heard.steps == []
    assert [key for row in heard.evaluations[0] for key in row.keys] == batch.keys


def test_other_attributes_are_the_buffers_own(queue: Queue) -> None:
    inner = Inner(queue)
    made, _ = recording(inner)
    made.refill_fn(3)
    assert inner.refilled == [3]
    assert made.poll_interval == 2.0
    with pytest.raises(AttributeError, match="no_such_thing"):
        made.no_such_thing  # noqa: B018


def test_a_stored_trajectory_is_read_back_unchanged(queue: Queue) -> None:
    inner = Inner(queue, rows("a", None, None))
    made, heard = recording(inner)
    take(made)
    sent = [StoredTrajectory.of(make_trajectory(attempt / 4, attempt=attempt), decode) for attempt in (0, 1)]
    assert [row.stored.to_line() for row in heard.steps[0]] == [stored.to_line() for stored in sent]
    assert [row.stored.to_dict() for row in heard.steps[0]] == [json.loads(json.dumps(s.to_dict())) for s in sent]


class Filtering(Inner):
    """verl's buffer in a step in which the attempts of no group differ: it asks for more as long as it filters."""

    filter_groups_metric: str | None = "reward"

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, float]]:
        while self.filter_groups_metric is not None:
            self.refill_fn(batch_size // 2)
        return super().sample(global_steps, partition_id, batch_size)


def test_groups_that_teach_nothing_are_replaced_up_to_the_factor(queue: Queue) -> None:
    inner = Filtering(queue, rows("a", None, None), rows("b", None, None))
    made = RecordingReplayBuffer(
        inner, Heard(), StopFile(Path("unasked")), group_size_needed=1, max_spoilt=1, refill_factor=3
    )
    submitted = inner.refilled
    for step in (1, 2):  # each step has the whole of it
        take(made)
        assert submitted == [2, 2, 2, 2] * step
