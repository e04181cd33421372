"""Which samples a step trains on, by what was learnt from them, and what a plugin of one's own can bring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from reporting_examples import infra_fault, make_trajectory

from rlfactory_core.algo.advantages import GRPO
from rlfactory_core.algo.difficulty import DifficultyPrompts
from rlfactory_core.algo.prompts import Played, PromptSampler, UniformPrompts, outcomes
from rlfactory_core.algo.settings import TrainConfig
from rlfactory_core.training.methods import GroupComparison
from rlfactory_core.types import Group, Sample, Score

COMPARISON = GroupComparison(TrainConfig(), GRPO, max_tokens=1, seed=0)


def samples(count: int, slices: Sequence[str] = ("",)) -> list[Sample]:
    return [Sample(f"s{number}", "?", slice=slices[number % len(slices)]) for number in range(count)]


def share(sampler: PromptSampler, wanted: set[int], steps: int = 200) -> float:
    drawn = [index for step in range(1, steps + 1) for index in sampler.step(step)]
    return sum(index in wanted for index in drawn) / len(drawn)


def test_what_is_solved_or_hopeless_is_looked_at_now_and_then() -> None:
    prompts = DifficultyPrompts(samples(30), per_step=4, seed=0)
    for _ in range(4):
        prompts.played([Played(index, 8.0 * (index % 3) / 2, 8) for index in range(30)])  # pass rates 0, 1/2, 1
    middle, others = {index for index in range(30) if index % 3 == 1}, {i for i in range(30) if i % 3 != 1}
    assert share(prompts, middle) > 0.6
    assert share(prompts, others) > 0.02


def test_a_sample_that_was_not_played_counts_like_its_slice() -> None:
    prompts = DifficultyPrompts(samples(40, ("easy", "hard")), per_step=4, seed=0)
    prompts.played([Played(0, 8.0, 8), Played(1, 4.0, 8)])
    assert prompts.pass_rate(2) == pytest.approx(1.0)
    assert prompts.pass_rate(3) == pytest.approx(0.5)
    assert share(prompts, set(range(1, 40, 2))) > 0.8


def test_a_pass_rate_follows_the_policy() -> None:
    prompts = DifficultyPrompts(samples(2), per_step=1, seed=0)
    for _ in range(5):
        prompts.played([Played(0, 0.0, 8), Played(1, 4.0, 8)])
    before = prompts.pass_rate(0)
    for _ in range(3):
        prompts.played([Played(0, 8.0, 8), Played(1, 4.0, 8)])
    assert before < 0.2
    assert prompts.pass_rate(0) > 0.75


def test_a_step_has_no_sample_twice_while_there_are_others() -> None:
    prompts = DifficultyPrompts(samples(12), per_step=8, seed=1)
    for step in range(1, 20):
        chosen = prompts.step(step)
        assert Counter(chosen).most_common(1)[0][1] == 1
        assert prompts.replacement(step, 3, 1) not in chosen
    assert len(DifficultyPrompts(samples(3), per_step=8, seed=1).step(1)) == 8


@pytest.mark.parametrize("make", [DifficultyPrompts, UniformPrompts])
def test_a_resumed_sampler_draws_as_the_whole_run_does(make: type[DifficultyPrompts], tmp_path: Path) -> None:
    def play(sampler: PromptSampler, first: int, last: int) -> list[list[int]]:
        drawn = []
        for step in range(first, last + 1):
            chosen = sampler.step(step)
            drawn.append([*chosen, sampler.replacement(step, 0, 1), sampler.replacement(step, 1, 2)])
            sampler.played([Played(index, float(index % 9), 8) for index in chosen])
        return drawn

    whole, resumed = make(samples(50), 4, seed=7), make(samples(50), 4, seed=7)
    expected = play(whole, 1, 10)
    file = tmp_path / "state.pt"
    first = make(samples(50), 4, seed=7)
    play(first, 1, 5)
    torch.save(first.state(), file)
    resumed.load(torch.load(file, weights_only=True))
    assert play(resumed, 6, 10) == expected[5:]
    assert play(make(samples(50), 4, seed=8), 1, 10) != expected


def test_uniform_replacements_differ_between_places_and_numbers() -> None:
    prompts = UniformPrompts(samples(100), per_step=4, seed=0)
    chosen = [prompts.replacement(step, place, 1) for step in (1, 2, 3) for place in range(4)]
    assert len(set(chosen)) == len(chosen)
    assert [prompts.replacement(1, place, 2) for place in range(4)] != chosen[:4]


def group(*rewards: float, masked: int = 0, success: float | None = None) -> Group:
    components = {} if success is None else {"exact_match": success}
    live = [replace(make_trajectory(attempt=i), score=Score(value, components)) for i, value in enumerate(rewards)]
    lost = [make_trajectory(attempt=len(live) + i, faults=(infra_fault(),)) for i in range(masked)]
    return Group(live[0].sample, (*live, *lost))


def test_a_group_teaches_nothing_if_its_rewards_are_equal_and_not_if_its_tools_were_down() -> None:
    assert COMPARISON.teaches_nothing(group(1.0, 1.0, 1.0))
    assert not COMPARISON.teaches_nothing(group(1.0, 0.0, 1.0))
    assert not COMPARISON.teaches_nothing(group(1.0, 1.0, masked=4))


def test_passes_are_successes_within_0_and_1_and_masked_attempts_do_not_count() -> None:
    played = group(1.1, 0.1, 5.0, masked=1)
    index = {played.sample.id: 3}
    assert outcomes([played], "exact_match", index) == [Played(3, pytest.approx(2.1), 3)]
    assert outcomes([group(1.1, 0.1, success=0.0)], "exact_match", index) == [Played(3, 0.0, 2)]
