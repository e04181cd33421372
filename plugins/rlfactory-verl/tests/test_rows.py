"""A trajectory of several rows gets the same sequences and advantages from both engines. Nothing of verl is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rlfactory_core.algo.advantages import GRPO
from rlfactory_core.algo.batch import build_batches
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.types import Group, Message, Sample, Score, StopReason, Trajectory, Turn

pytest.importorskip("verl", reason="the other engine")
import numpy as np
import torch
from rlfactory_verl.aggregation import scaled_advantages
from rlfactory_verl.output import TrajectoryOutput, agent_loop_outputs
from rlfactory_verl.rollout_request import FIELD, IMAGES, Position
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import AdvantageEstimator
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from rlfactory_core.algo.batch import trajectory_weights

pytestmark = pytest.mark.slow

SAMPLE = Sample("s", "Who?", "him")


def turn(context: Sequence[int], sampled: Sequence[int], row: int = 0, fork: str = "") -> Turn:
    logprobs = tuple(-number / 100 for number in sampled)
    return Turn(tuple(context), tuple(sampled), logprobs, Message("assistant", "x"), row=row, fork=fork)


def attempt(number: int, reward: float, *turns: Turn) -> Trajectory:
    score = Score(reward, {"exact_match": reward})
    return Trajectory(SAMPLE, number, turns, StopReason.FINAL_ANSWER, score=score, answer="him")


GROUP = Group(
    SAMPLE,
    (
        attempt(0, 1.0, turn([1, 2], [3, 4]), turn([5], [6])),
        attempt(1, 0.0, turn([1, 2], [7]), turn([1, 8, 9], [10, 11], 1, "edited_history"), turn([5], [12])),
        attempt(
            2,
            0.5,
            turn([1, 2], [3]),
            turn([20, 21], [22, 23], 1, "subagent"),
            turn([24], [25], 1),
            turn([1, 2, 3, 26], [27], 2, "branch"),
        ),
    ),
)


def outputs() -> dict[str, TrajectoryOutput]:
    found = {}
    for each in GROUP.trajectories:
        stored = StoredTrajectory.of(each, str)
        made = agent_loop_outputs(stored, [], Position("train", 1, 0), pad_id=0, oldest=0, newest=0)
        found |= {f"uid_{each.attempt}_{number}": output for number, output in enumerate(made)}
    return found


def test_each_row_is_a_sequence_and_the_last_has_the_trajectory() -> None:
    made = outputs()
    assert list(made) == ["uid_0_0", "uid_1_0", "uid_1_1", "uid_2_0", "uid_2_1", "uid_2_2"]
    assert [bool(each.extra_fields[FIELD]) for each in made.values()] == [True, False, True, False, False, True]
    assert [each.reward_score for each in made.values()] == [1.0, None, 0.0, None, None, 0.5]
    rows = [row for each in GROUP.trajectories for row in each.rows]
    for row, output in zip(rows, made.values(), strict=True):
        assert (*output.prompt_ids, *output.response_ids) == row.ids
        assert [0] * len(output.prompt_ids) + output.response_mask == list(row.loss_mask)


def test_advantages_are_the_same_in_every_row() -> None:
    made = outputs()
    for output in made.values():  # as verl's worker does with the last output's
        output.reward_score = 0.0 if output.reward_score is None else output.reward_score
    fields = [output.as_dict() for output in made.values()]

    def padded(name: str) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence([each[name] for each in fields], batch_first=True)

    tensors = {"token_level_rewards": padded("rm_scores"), "response_mask": padded("response_mask")}
    batch = DataProto.from_dict(tensors, non_tensors={"uid": np.array(["uid"] * len(fields), dtype=object)})
    given = compute_advantage_for_multi_trajectories(batch, list(made), AdvantageEstimator.GRPO)
    sequences = [
        sequence for found in build_batches([GROUP], advantage=GRPO, updates=1, seed=0) for sequence in found.sequences
    ]
    mine = {sequence.ids: max(sequence.advantages, key=abs) for sequence in sequences}
    rows = [row for each in GROUP.trajectories for row in each.rows]
    for row, advantages, mask in zip(rows, given.batch["advantages"], given.batch["response_mask"], strict=True):
        expected = mine.get(row.ids, 0.0)  # the local engine leaves out what has no gradient
        assert advantages[mask.bool()].tolist() == pytest.approx([expected] * int(mask.sum()), abs=1e-4)


def test_with_the_weight_of_a_trajectory_both_engines_agree() -> None:
    made = outputs()
    values = {"uid_0": 1.0, "uid_1": -1.0, "uid_2": 2.0}
    masks = [torch.tensor(output.response_mask) for output in made.values()]
    advantages = [values[key.rsplit("_", 1)[0]] * mask for key, mask in zip(made, masks, strict=True)]
    scaled = scaled_advantages(list(made), advantages, masks, partial(trajectory_weights, "trajectory"))
    sums = dict.fromkeys(values, 0.0)
    for key, row in zip(made, scaled, strict=True):
        sums[key.rsplit("_", 1)[0]] += float(row.sum())
    tokens = sum(trajectory.num_sampled for trajectory in GROUP.trajectories)
    assert sums == pytest.approx({name: value * tokens / 3 for name, value in values.items()})


def test_a_row_has_the_images_that_its_own_ids_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vision = pytest.importorskip("rlfactory_vision", reason="`nox -s verl` installs it")
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path))
    pillow = pytest.importorskip("PIL.Image")
    asked, seen = (vision.Image.of(pillow.new("RGB", (size, 4))).digest for size in (4, 8))
    first, second = replace(turn([1], [2]), images=(asked,)), replace(turn([3], [4], 1), images=(seen,))
    played, nothing = attempt(0, 1.0, first, second), attempt(1, 0.0)
    made = [
        each
        for trajectory in (played, nothing)
        for each in agent_loop_outputs(
            StoredTrajectory.of(trajectory, str),
            [1],
            Position("train", 1, 0),
            pad_id=0,
            oldest=0,
            newest=0,
            images=(asked,),
        )
    ]
    assert [each.extra_fields[IMAGES] for each in made] == [[asked], [seen], [asked]]
    assert [[image.width for image in (each.multi_modal_data or {})["images"]] for each in made] == [[4], [8], [4]]
