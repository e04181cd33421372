"""An attempt that an infra fault spoils is played again, as the same attempt: a retry selects nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from conversations import LIMITS, RecordingSampler, calling, check_exact
from rlfactory_devkit import ToyChatFormat

from rlfactory_core.errors import ToolUnavailableError
from rlfactory_core.protocols import Env, Sampler
from rlfactory_core.rollout import Episode, ToolEnv, rollout
from rlfactory_core.rollout.retrying import retried
from rlfactory_core.tools import DefaultToolManager, tool
from rlfactory_core.types import Sample, StopReason, Trajectory

ANSWER = "<answer>him</answer>"


def play(down_for: int, retries: int) -> tuple[Trajectory, RecordingSampler, list[str]]:
    """An attempt whose tool fails for so many calls."""
    called: list[str] = []

    @tool
    async def search(query: str) -> str:
        """Search."""
        called.append(query)
        if len(called) <= down_for:
            raise ToolUnavailableError("the corpus is away")
        return "found"

    manager = DefaultToolManager([search])
    sampler = RecordingSampler([calling(query="a"), ANSWER, "never", "never"])

    def make_env(sample: Sample, context: Any) -> Env:
        return ToolEnv(sample, manager, context)

    def attempt(sampler: Sampler) -> Any:
        return rollout(Episode(Sample("s", "Who?"), make_env, LIMITS, "run/0/0"), ToyChatFormat(), sampler)

    return asyncio.run(retried(attempt, sampler, retries)), sampler, called


def test_a_retry_says_the_same_again_and_goes_on() -> None:
    played, sampler, called = play(down_for=1, retries=1)
    assert (played.stop, played.faults) == (StopReason.FINAL_ANSWER, ())
    assert called == ["a", "a"]
    assert len(sampler.calls) == 2  # the call was sampled once
    check_exact(played.turns, sampler)


def test_a_tool_that_stays_away_masks_after_all_retries() -> None:
    played, sampler, called = play(down_for=9, retries=2)
    assert played.masked
    assert called == ["a"] * 3
    assert len(sampler.calls) == 1  # who called was not sampled anew


def test_without_retries_there_is_one_attempt() -> None:
    played, _, called = play(down_for=1, retries=0)
    assert played.masked
    assert called == ["a"]
