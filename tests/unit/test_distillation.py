"""On-policy distillation: its credit gives the gradient of the reverse KL, and a group is shown to its teacher."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from reporting_examples import make_group, make_trajectory

from rlfactory_core.algo.advantages import GRPO, NO_DISCOUNT
from rlfactory_core.algo.batch import build_batches
from rlfactory_core.algo.distillation import TeacherCredit
from rlfactory_core.config import RunConfig
from rlfactory_core.engines.base import Engine
from rlfactory_core.errors import BackendError, ConfigError
from rlfactory_core.reporting.metrics import group_metrics
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.training.run import Training
from rlfactory_core.training.teachers import TaughtPlay
from rlfactory_core.types import Group, Message, Sample, StopReason, TaughtToken, TrainSequence, Trajectory, Turn

TOKENS = 3  # the toy policy's vocabulary
TURN, SAMPLED = 2, 3  # tokens of the first of its two turns, and of both
PROMPT, OBSERVATION = 10, 20


def observed(turn: Sequence[int]) -> tuple[int, ...]:
    """The environment's answer, which depends on what was sampled."""
    return (OBSERVATION + sum(turn) % 2,)


def prefixes(sampled: Sequence[int]) -> list[tuple[int, ...]]:
    """What each sampled token is sampled from."""
    context = (PROMPT, *sampled[:TURN], *observed(sampled[:TURN]), *sampled[TURN:])
    return [context[:place] for place in (1, 2, 4)]


class Table:
    """A policy whose logits stand in a table, for every prefix that there is."""

    def __init__(self, seed: int) -> None:
        import torch

        self.torch = torch
        generator = torch.Generator().manual_seed(seed)
        found = {each for sampled in EVERY for each in prefixes(sampled)}
        self.logits = {
            each: torch.randn(TOKENS, generator=generator, dtype=torch.float64).requires_grad_()
            for each in sorted(found)
        }

    def logprobs(self, sampled: Sequence[int]) -> Any:
        parts = [
            self.logits[each].log_softmax(-1)[token] for each, token in zip(prefixes(sampled), sampled, strict=True)
        ]
        return self.torch.stack(parts)

    def gradient(self, value: Any) -> Any:
        return self.torch.cat(self.torch.autograd.grad(value, list(self.logits.values()), materialize_grads=True))


EVERY = list(itertools.product(range(TOKENS), repeat=SAMPLED))


def toy_trajectory(attempt: int, sampled: Sequence[int], policy: Any, teacher: Any) -> Trajectory:
    def turn(context: tuple[int, ...], part: slice) -> Turn:
        own, other = policy[part].tolist(), teacher[part].tolist()
        return Turn(context, tuple(sampled[part]), tuple(own), Message("assistant", ""), teacher_logprobs=tuple(other))

    turns = (turn((PROMPT,), slice(TURN)), turn(observed(sampled[:TURN]), slice(TURN, SAMPLED)))
    return Trajectory(Sample("toy", "?"), attempt, turns, StopReason.NO_TOOL_CALL)


@pytest.mark.parametrize("discount", [0.0, 1.0])
def test_the_expected_gradient_is_that_of_the_reverse_kl(discount: float) -> None:
    """Over every pair of trajectories of a toy policy: at each prefix alone (discount 0), of whole trajectories (1)."""
    torch = pytest.importorskip("torch")
    from rlfactory_core.algo.losses import LossOptions, objective

    policy, teacher = Table(0), Table(1)
    logs = [policy.logprobs(each) for each in EVERY]
    trajectories = [
        toy_trajectory(number, each, log.detach(), teacher.logprobs(each).detach())
        for number, (each, log) in enumerate(zip(EVERY, logs, strict=True))
    ]
    chances = torch.stack([each.detach().sum().exp() for each in logs])
    assert float(chances.sum()) == pytest.approx(1.0)
    loss = 0.0
    for one, other in itertools.product(range(len(EVERY)), repeat=2):  # every group of two attempts
        group = Group(trajectories[0].sample, (trajectories[one], trajectories[other]))
        (batch,) = build_batches([group], advantage=TeacherCredit(discount), updates=1, seed=0)
        for sequence in batch.sequences:
            own = [place for place, mask in enumerate(sequence.loss_mask) if mask]
            sampled = tuple(sequence.ids[place] for place in own)
            advantages, behaviour = (
                torch.tensor([values[place] for place in own], dtype=torch.float64)
                for values in (sequence.advantages, sequence.logprobs)
            )
            found = objective(logs[EVERY.index(sampled)], behaviour, advantages, LossOptions()).loss
            loss = loss + chances[one] * chances[other] * found / 2  # attempts
    expected = policy.gradient(loss)
    exact = policy.gradient(whole_kl(policy, teacher) if discount else kl_at_each_prefix(policy, teacher))
    assert float((expected - exact).abs().max()) < 1e-6
    assert float(exact.abs().max()) > 0.05


def test_the_gradient_over_the_teachers_likely_ids_is_that_of_the_reverse_kl() -> None:
    """Of all ids exactly, at each prefix that the policy samples; of fewer, that of the KL with the others as one."""
    torch = pytest.importorskip("torch")
    from rlfactory_core.algo.losses import LossOptions, objective

    policy, teacher = Table(0), Table(1)
    for likely in (TOKENS, TOKENS - 1):
        loss, expected = 0.0, kl_at_each_prefix(policy, teacher, likely)
        for sampled in EVERY:
            logs = policy.logprobs(sampled)
            tables = [
                [each.logits[prefix].log_softmax(-1) for each in (policy, teacher)] for prefix in prefixes(sampled)
            ]
            best = [q.topk(likely).indices for _, q in tables]
            pairs = [torch.stack([table[at][ids] for table, ids in zip(tables, best, strict=True)]) for at in (0, 1)]
            zeros = torch.zeros(SAMPLED, dtype=torch.float64)
            found = objective(logs, logs.detach(), zeros, LossOptions(), teacher=(pairs[0], pairs[1].detach()))
            loss = loss + logs.detach().sum().exp() * found.loss
        assert float((policy.gradient(loss) - policy.gradient(expected)).abs().max()) < 1e-6


def test_where_likely_ids_are_compared_the_rewards_alone_give_credit() -> None:
    group = [seen(each, 0.5) for each in make_group([1.0, 0.0]).trajectories]
    rewarded = GRPO(group, NO_DISCOUNT)
    for attempt, turns in enumerate(TeacherCredit(0.0, GRPO, 2.0, compared=True)(group, NO_DISCOUNT)):
        assert [set(tokens) for tokens in turns] == [{2.0 * value} for value in rewarded[attempt]]


def whole_kl(policy: Table, teacher: Table) -> Any:
    logs = [(policy.logprobs(each).sum(), teacher.logprobs(each).sum().detach()) for each in EVERY]
    return sum(p.exp() * (p - q) for p, q in logs)


def kl_at_each_prefix(policy: Table, teacher: Table, likely: int = TOKENS) -> Any:
    """The KL of the next token, over the prefixes that the policy samples, whose chances are held fixed.

    Of so many of the teacher's ``likely`` tokens, and of the others as one.
    """
    found: dict[tuple[int, ...], Any] = {}
    for each in EVERY:
        chances = policy.logprobs(each).detach()
        for place, prefix in enumerate(prefixes(each)):
            found[prefix] = chances[:place].sum().exp()
    parts = []
    for prefix, chance in found.items():
        best = teacher.logits[prefix].argsort(descending=True)
        p, q = (table.logits[prefix].log_softmax(-1)[best] for table in (policy, teacher))
        if likely < TOKENS:
            p, q = (policy.torch.cat([each[:likely], each[likely:].logsumexp(0, keepdim=True)]) for each in (p, q))
        parts.append(chance * (p.exp() * (p - q.detach())).sum())
    return sum(parts)


def seen(trajectory: Trajectory, gap: float) -> Trajectory:
    """With a teacher that finds each sampled token likelier by ``gap``."""
    turns = (replace(turn, teacher_logprobs=tuple(value + gap for value in turn.logprobs)) for turn in trajectory.turns)
    return replace(trajectory, turns=tuple(turns))


def test_the_advantage_of_the_reward_is_added_with_its_weight() -> None:
    one, other = make_group([1.0, 0.0]).trajectories
    group = [seen(one, 0.5), seen(other, 0.25)]
    alone = TeacherCredit(0.0, GRPO, 0.0)(group, NO_DISCOUNT)
    both = TeacherCredit(0.0, GRPO, 2.0)(group, NO_DISCOUNT)
    rewarded = GRPO(group, NO_DISCOUNT)
    for attempt, (plain, added) in enumerate(zip(alone, both, strict=True)):
        assert [len(tokens) for tokens in added] == [len(turn.sampled_ids) for turn in group[attempt].turns]
        assert plain[0] == pytest.approx([(0.25, -0.25)[attempt]] * len(plain[0]))
        assert added[0] == pytest.approx([plain[0][0] + 2.0 * rewarded[attempt][0]] * len(plain[0]))


def test_an_engine_that_does_not_compare_likely_ids_refuses_them() -> None:
    plain = type("Plain", (Engine,), dict.fromkeys(Engine.__abstractmethods__))()
    config = RunConfig.model_validate({"plugin": "toy", "train": {"method": "opd"}})
    with pytest.raises(ConfigError, match="this engine compares sampled tokens alone"):
        Training(plain).prepare(config)


class Judge:
    """A teacher that finds a token as likely as its id says, and answers when it is well."""

    def __init__(self, *, well: bool = True) -> None:
        self.well, self.asked = well, 0

    async def score(self, sequences: Sequence[TrainSequence], likely: int = 0) -> list[list[TaughtToken]]:
        self.asked += len(sequences)
        best = tuple(range(likely)), (-1.0,) * likely
        if not self.well:
            raise BackendError("http://127.0.0.1:1/v1 cannot be reached.")
        return [
            [TaughtToken(-token / 1000, *best) for token, own in zip(each.ids, each.loss_mask, strict=True) if own]
            for each in sequences
        ]

    async def close(self) -> None: ...


def taught(group: Group, teachers: Mapping[str, Judge], likely: int = 0) -> Group:
    async def play(_sample: Sample, **_how: Any) -> Group:
        return group

    return asyncio.run(TaughtPlay(play, teachers, likely)(group.sample))


def test_likely_ids_reach_the_rows_of_a_batch_and_no_file() -> None:
    group = taught(make_group([1.0, 0.0], calls=2), {"": Judge()}, likely=2)
    (batch,) = build_batches([group], advantage=TeacherCredit(compared=True), updates=1, seed=0, zeros=True)
    for row in batch.sequences:
        assert {each.likely for each in row.taught} == {(0, 1)}
        assert [each.logprob for each in row.taught] == [
            -token / 1000 for token, own in zip(row.ids, row.loss_mask, strict=True) if own
        ]
    line = StoredTrajectory.of(group.trajectories[0], lambda _ids: "").to_line()
    assert StoredTrajectory.from_line(line).trajectory.turns[0].taught == ()


def test_each_sampled_token_gets_the_log_prob_of_its_teacher_also_in_a_second_row() -> None:
    one, other = make_group([1.0, 0.0], calls=2).trajectories
    forked = replace(one, turns=(one.turns[0], replace(one.turns[1], row=1, fork="edited_history"), one.turns[2]))
    group = taught(Group(one.sample, (forked, other)), {"": Judge()})
    for trajectory in group.trajectories:
        for turn in trajectory.turns:
            assert turn.teacher_logprobs == tuple(-token / 1000 for token in turn.sampled_ids)
        line = StoredTrajectory.of(trajectory, lambda _ids: "").to_line()
        assert StoredTrajectory.from_line(line).trajectory.turns[0].teacher_logprobs
    metrics = group_metrics([group])
    gaps = {
        calls: [
            own - its
            for each in group.trajectories
            for turn in each.turns
            if bool(turn.message.tool_calls) is calls
            for own, its in zip(turn.logprobs, turn.teacher_logprobs, strict=True)
        ]
        for calls in (True, False)
    }
    assert metrics["teacher_kl/calls"] == pytest.approx(fmean(gaps[True]))
    assert metrics["teacher_kl/answers"] == pytest.approx(fmean(gaps[False]))
    assert metrics["teacher_kl"] == pytest.approx(fmean([*gaps[True], *gaps[False]]))
    assert 0.05 < metrics["teacher_kl_top"] < 1.0


def test_a_teacher_that_does_not_answer_masks_the_attempts_and_says_who_it_is() -> None:
    group = taught(make_group([1.0, 0.0]), {"": Judge(well=False)})
    assert all(each.masked for each in group.trajectories)
    metrics = group_metrics([group])
    assert metrics["masked/teacher"] == 2
    assert "teacher_kl" not in metrics


def test_each_task_has_its_own_teacher() -> None:
    search, other = Judge(), Judge()
    of = replace(make_trajectory().sample, task="search")
    taught(Group(of, make_group([1.0, 0.0]).trajectories), {"search": search, "": other})
    taught(Group(replace(of, task="sql"), make_group([1.0]).trajectories), {"search": search, "": other})
    assert (search.asked, other.asked) == (2, 1)
