"""Reward functions that were written for TRL score here as there."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from reward_examples import SEARCH, trajectory

from rlfactory_core.rewards import RewardLayer, TrlReward
from rlfactory_core.rewards.trl import reward_of
from rlfactory_core.types import Group, Score


def scored(function: Any) -> list[float]:
    right = trajectory(SEARCH, "4", answer="4", result="four")
    right = replace(right, turns=(right.turns[0], replace(right.turns[1], results=())))
    members = (right, trajectory("5", answer="4"))
    group = Group(members[0].sample, members)
    done = asyncio.run(RewardLayer({"it": (TrlReward(function), 1.0)}).score_group(group))  # type: ignore[dict-item]
    return [each.reward if not each.masked else float("nan") for each in done.trajectories]


def test_a_function_of_a_batch_scores_a_group() -> None:
    seen: dict[str, Any] = {}

    def right(completions: list[Any], answer: list[str], **columns: Any) -> list[float]:
        seen.update(columns, completions=completions, thread=threading.current_thread())
        return [float(each[-1]["content"] == truth) for each, truth in zip(completions, answer, strict=True)]

    assert scored(right) == [1.0, 0.0]
    assert [len(each) for each in seen["completions"]] == [3, 1]  # a call, its result, an answer
    assert seen["completions"][0][0]["tool_calls"][0]["function"]["name"] == "search"
    assert [len(seen[name]) for name in ("prompts", "completion_ids")] == [2, 2]
    assert seen["thread"] is not threading.main_thread()


def test_a_function_of_a_trajectory_is_a_reward_and_one_of_completions_is_trls() -> None:
    def brief(trajectory: Any) -> float:
        return 0.5

    async def late(trajectory: Any) -> Score:
        return Score(0.25)

    layer = RewardLayer({"brief": (reward_of(brief), 1.0), "late": (reward_of(late), 1.0)})  # type: ignore[dict-item]
    assert asyncio.run(layer.score_trajectory(trajectory("x"))).reward == 0.75
    assert isinstance(reward_of(lambda completions: [1.0]), TrlReward)


def test_an_async_function_gets_what_it_takes() -> None:
    async def lengths(completions: list[Any]) -> list[float | None]:
        return [float(len(completions[0])), None]

    assert scored(lengths) == [3.0, 0.0]


@pytest.mark.parametrize("given", [[1.0], 1.0, None])
def test_another_number_of_rewards_is_a_fault(given: Any) -> None:
    assert all(value != value for value in scored(lambda completions: given))
