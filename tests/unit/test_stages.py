"""``train.method`` and ``stages``: what a stage's keys become, what is refused, and which attempts are learnt from."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from reporting_examples import make_group, make_trajectory
from runs import TINY_TASK
from said import Said

from rlfactory_core.config import RunConfig
from rlfactory_core.engines.base import Processes
from rlfactory_core.errors import TrainingError, UsageError
from rlfactory_core.runner import prepare
from rlfactory_core.training.methods import Imitation
from rlfactory_core.training.place import Place
from rlfactory_core.training.stopping import Stopping, Until
from rlfactory_core.types import Group, Trajectory
from rlfactory_core.utils.interrupt import StopRequest

SFT = {"method": "sft", "source": "solve"}
OPD = ("train.method=opd", "train.teacher=big")


def resolved(*keys: object) -> RunConfig:
    return prepare(None, [{"plugin": TINY_TASK}, *keys]).config  # type: ignore[list-item]


def test_a_stage_has_its_own_keys_those_of_its_method_and_the_rest_of_the_run() -> None:
    config = resolved("train.lr=3e-6", "train.steps=7", {"stages": [{**SFT, "steps": 5}, {"method": "grpo"}]})
    supervised, compared = (each.train for each in config.by_stage())
    assert (supervised.steps, supervised.loss, supervised.group_size) == (5, "nll", 1)
    assert supervised.lr == 2e-4  # the rate that GRPO gets from the user is not that of the demonstrations
    assert (compared.method, compared.steps, compared.lr, compared.group_size) == ("grpo", 7, 3e-6, 4)


def test_a_run_of_one_method_takes_the_users_keys_before_those_that_suit_it() -> None:
    train = resolved("train.method=sft", "train.lr=1e-5").train
    assert (train.lr, train.steps, train.muon_lr, train.advantage) == (1e-5, 60, 0.0, "imitation")


def test_a_warm_start_is_a_stage_before_the_others() -> None:
    warm = (
        "warm_start.source=solve",
        "warm_start.where=turns > 1",
        "warm_start.lr=1e-4",
        "warm_start.until.called=0.9",
    )
    config = resolved("train.method=rft", *warm)
    supervised, own = (each.train for each in config.by_stage())
    assert (supervised.method, supervised.where, supervised.steps) == ("sft", "turns > 1", 60)
    assert (supervised.lr, supervised.until) == (1e-4, {"called": 0.9})
    assert (own.method, own.winners, own.where, own.until) == ("rft", 4, "", {})
    several = resolved({"stages": [{"method": "rft", "steps": 3}, {"method": "grpo"}]}, *warm)
    assert [each.train.method for each in several.by_stage()] == ["sft", "rft", "grpo"]
    lower = several.with_stage(0, {"lr": 5e-5}).with_stage(1, {"lr": 1e-6})
    assert [each.train.lr for each in lower.by_stage()] == [5e-5, 1e-6, several.train.lr]


def test_a_warm_start_goes_before_a_teacher_whose_keys_it_does_not_read() -> None:
    config = resolved(*OPD, "train.reward_weight=0.5", "warm_start.source=solve")
    supervised, distilled = (each.train for each in config.by_stage())
    assert (supervised.method, supervised.teacher, supervised.reward_weight) == ("sft", "", 0.0)
    assert (distilled.method, distilled.teacher, distilled.reward_weight) == ("opd", "big", 0.5)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["train.group_size=1"], "train.group_size: got 1, expected greater than or equal to 2"),
        (["train.method=sft", "train.loss=ppo"], "train.method=sft means train.loss=nll; got ppo"),
        (["train.method=sft", "train.group_size=4"], "means train.group_size=1; got 4"),
        (["train.method=sft", "train.source=elsewhere"], "train.source=elsewhere: expected solve"),
        (["train.method=sft", "train.where=reward >"], "cannot be read"),
        (["train.method=opd"], "train.method=opd needs train.teacher"),
        (["train.teacher=big"], "train.teacher=big: train.method=grpo does not read it; it is of opd"),
        (["train.teacher=big", {"stages": [SFT, {"method": "grpo"}]}], "train.method=sft and grpo does not read it"),
        ([*OPD, "rollout.temperature=0.7"], "compares log-probs at temperature 1, and rollout.temperature=0.7"),
        ([*OPD, "train.advantage=gae"], "train.method=opd has no critic"),
        ([*OPD, "train.refill=true"], "train.refill=true replaces those that do not"),
        ([*OPD, "train.teacher_top=8", "train.teacher_discount=1"], "train.teacher_discount=1 has no meaning"),
        ([*OPD, "train.teacher_top=8", "train.aggregation=trajectory"], "train.aggregation=trajectory has no meaning"),
        (["train.method=opd", {"train": {"teacher": {"sql": "big"}}}], "train.teacher names sql, and the run's tasks"),
        (["train.winners=2"], "train.winners=2: train.method=grpo does not read it; it is of rft"),
        ([{"stages": [{"method": "sft", "lora": {"rank": 4}}]}], "stages.0.lora is the same in all stages"),
        ([{"stages": [SFT, {"method": "grpo", "step": 4}]}], "stages.1.step"),
        (["warm_start.steps=20"], "add --warm-start SOURCE"),
        (["warm_start.source=solve", "warm_start.method=rft"], "write other stages into stages"),
        (["warm_start.source=solve", "warm_start.setps=20"], "Did you mean 'warm_start.steps'"),
        (["warm_start.source=solve", "warm_start.steps=many"], "warm_start.steps: got 'many'"),
        (["warm_start.source=elsewhere"], "train.source=elsewhere: expected solve"),
        (["train.method=rft", {"stages": [SFT, {"method": "grpo"}]}], "Write the methods into the stages alone"),
        ([{"stages": [{"method": "grpo", "until": {"exakt": 1}}]}], "train.until.exakt"),
    ],
)
def test_what_does_not_fit_is_refused(keys: Sequence[object], words: str) -> None:
    with pytest.raises(UsageError) as error:
        resolved(*keys)
    assert words in str(error.value)


def imitation(most: int = 0, updates: int = 1) -> Imitation:
    train = resolved("train.method=rft", f"train.updates_per_step={updates}").train
    return Imitation(train, lambda each: each.reward >= 1, most, seed=0)


def test_attempts_that_are_worth_it_are_learnt_from_and_the_others_counted() -> None:
    group = make_group((0.0, 1.0, 0.4, 1.0))
    (batch,) = imitation().batches([group], 1)
    assert len(batch.sequences) == 2
    assert all(row.advantages == tuple(map(float, row.loss_mask)) for row in batch.sequences)
    assert imitation().metrics([group]) == {"learnt_from": 2.0, "left_out": 2.0}
    assert imitation(most=1).metrics([group]) == {"learnt_from": 1.0, "left_out": 3.0}
    assert len(imitation(updates=3).batches([group], 1)) == 3
    assert imitation().left_out([make_group((0.0, 0.0))]) == []  # that no attempt succeeds does not end a run


def test_demonstrations_that_are_left_out_are_named_and_a_run_without_any_stops() -> None:
    heard = Said()
    train = resolved("train.method=sft").train
    stopping = Stopping(train, Until({}, 0, "exact_match"), Processes(), StopRequest(), heard)
    method = Imitation(train, lambda each: each.reward > 0, 0, seed=0)
    groups = [make_group((1.0,)), make_group((0.0,))]
    stopping.left_out(1, groups, method.left_out(groups))
    stopping.left_out(2, groups, method.left_out(groups))  # once is enough
    (line,) = heard.lines
    assert line == (
        "warning: step 1: 1 of 2 demonstrations are not learnt from. Such as sample 'q1': reward 0, stop final_answer; "
        "train.where decides"
    )
    none = Stopping(train, Until({}, 0, "exact_match"), Processes(), StopRequest(), heard)
    with pytest.raises(TrainingError, match="1 of 1 demonstrations"):
        none.left_out(1, groups[1:], method.left_out(groups[1:]))


def test_rejection_sampling_trains_as_supervised_training_on_the_winners() -> None:
    """The rows, masks and weights are equal, and so is the loss; so are the gradients."""

    def rows(attempts: Sequence[Trajectory], most: int) -> list[object]:
        batches = imitation(most).batches([Group(attempts[0].sample, tuple(attempts))], 1)
        return [(row.ids, row.loss_mask, row.advantages) for batch in batches for row in batch.sequences]

    attempts = [make_trajectory(reward, answer=str(reward)) for reward in (0.0, 1.0, 0.4, 2.0)]
    assert rows(attempts, most=2) == rows([attempts[1], attempts[3]], most=0)


def test_a_checkpoint_of_a_run_without_stages_is_in_its_first_stage() -> None:
    assert Place.of(1, {"step": 12}) == Place(1, (), 1)
    later = Place(2).after("sft", 9, "did all 9 steps")
    assert (later.number, later.first, later.is_last, later.last(5)) == (1, 10, True, 14)
    assert Place.of(2, later.state()) == later
