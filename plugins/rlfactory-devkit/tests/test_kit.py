"""What authors assert with: what passes, and what they read where something does not; faults for tools."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from rlfactory_devkit import (
    FaultInjector,
    InjectedFaults,
    TaskBench,
    assert_called,
    assert_masks,
    assert_not_masked,
    assert_reward,
    assert_stop,
    constant,
    lognormal,
    script,
    show,
    steady,
)

from rlfactory_core import (
    Message,
    Sample,
    Score,
    StopReason,
    ToolContext,
    ToolResult,
    Trajectory,
    tool,
)
from rlfactory_core.errors import RlfactoryError
from rlfactory_core.tiny import call
from rlfactory_core.types import Fault, FaultKind, Turn

LOOKS = call("search", query="Ωmega", top=3)
RESULT = ToolResult(LOOKS.id, "search", "Ann  Lee\n" + "leads it. " * 40)
ASKED = Turn((1, 2), (3, 4), (-0.5, 0.0), Message("assistant", "Let me look.", tool_calls=(LOOKS,)), (RESULT,))
ANSWERED = Turn((5,), (6,), (-1.0,), Message("assistant", "<answer>Ann</answer>"))
PLAYED = Trajectory(
    Sample("q1", "Who leads „it“?", "Ann"),
    0,
    (ASKED, ANSWERED),
    StopReason.FINAL_ANSWER,
    score=Score(1.1, {"exact_match": 1.0, "format": 1.0}),
)
AWAY = replace(PLAYED, faults=(Fault(FaultKind.INFRA, "search", "timed out after 5 s", 0),))


def test_what_holds_passes() -> None:
    assert_masks(PLAYED)
    assert_called(PLAYED, "search")
    assert_called(PLAYED, "search", times=1, query="Ωmega")
    assert_called(PLAYED, "search", times=0, query="Alpha")
    assert_called(PLAYED, "open", times=0)
    assert_not_masked(replace(PLAYED, faults=(Fault(FaultKind.POLICY, "search", "bad JSON", 0),)))
    assert_reward(PLAYED, 1.1, exact_match=1)
    assert_reward(PLAYED, 1.0, tolerance=0.2)
    assert_stop(PLAYED, "final_answer")
    assert_stop(PLAYED, StopReason.FINAL_ANSWER)


@pytest.mark.parametrize(
    ("check", "told"),
    [
        (lambda: assert_called(PLAYED, "open"), "open was to be called at least once and was called never"),
        (
            lambda: assert_called(PLAYED, "search", times=2, top=3),
            "search(top=3) was to be called twice and was called once",
        ),
        (lambda: assert_called(PLAYED, "search", top=4), "search(top=4) was to be called at least once"),
        (lambda: assert_not_masked(AWAY), "fault: infra, search, turn 1: timed out after 5 s"),
        (lambda: assert_reward(AWAY, 1.1), "it is left out of the update"),
        (lambda: assert_reward(PLAYED, 1.0), "the reward is 1.1, not 1"),
        (lambda: assert_reward(PLAYED, 1.1, format=0.5), "the component 'format' is 1, not 0.5"),
        (lambda: assert_reward(PLAYED, 1.1, judge=1.0), "no component 'judge', only exact_match, format"),
        (lambda: assert_reward(replace(PLAYED, score=None), 0.0), "it was not scored"),
        (lambda: assert_stop(PLAYED, "length"), "it stopped with final_answer, not length"),
    ],
)
def test_a_failure_says_what_and_shows_the_conversation(check: Any, told: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check()
    assert told in str(caught.value)
    assert "> Let me look. search(query='Ωmega', top=3)\n| search: Ann Lee leads it." in str(caught.value)


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        (replace(ANSWERED, logprobs=()), "turn 2 has 1 sampled ids and 0 log-probs"),
        (replace(ANSWERED, logprobs=(0.5,)), "turn 2 has an impossible log-prob: 0.5"),
        (replace(ANSWERED, logprobs=(float("nan"),)), "turn 2 has an impossible log-prob: nan"),
    ],
)
def test_masks_that_do_not_fit_are_found(turn: Turn, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        assert_masks(replace(PLAYED, turns=(ASKED, turn)))


def test_the_conversation_in_short() -> None:
    lines = show(AWAY).splitlines()
    assert lines[0] == "── q1  attempt 0  reward 1.1 (exact_match 1, format 1)"
    assert lines[1] == "| user: Who leads „it“?"
    assert lines[4:] == [
        "> <answer>Ann</answer>",
        "fault: infra, search, turn 1: timed out after 5 s",
        "stop: final_answer, 2 turn(s), 3 sampled tokens",
    ]
    assert len(lines[3]) < 200
    silent = replace(PLAYED, turns=(replace(ANSWERED, message=Message("assistant", "")),))
    assert "> (nothing)" in show(silent)


def test_a_script_goes_on_where_the_prompt_has_turns_of_the_assistants() -> None:
    shots = (Message("user", "1?"), Message("assistant", "1!"), Message("user", "2?"))
    sample = Sample("q", shots)
    policy = script(LOOKS, "two")
    first = policy(sample, shots, (), random.Random(0))
    assert isinstance(first, Message)
    assert first.tool_calls == (LOOKS,)
    later = (*shots, first, Message("tool", "found"))
    assert policy(sample, later, (), random.Random(0)) == "two"
    assert policy(sample, (*later, Message("assistant", "two")), (), random.Random(0)) == "two"


@tool
def echo(text: str) -> str:
    """Give the text back.

    Args:
        text: anything.
    """
    return text


def test_a_tool_may_answer_with_a_flood() -> None:
    async def answers(**weather: Any) -> list[str]:
        injected = FaultInjector(echo, 3, InjectedFaults(**weather))
        context = ToolContext("t/0", PLAYED.sample)
        return [await injected.call({"text": "é"}, context) for _ in range(20)]

    assert {len(text.encode()) for text in asyncio.run(answers(flood_rate=1.0))} == {10_000_000}
    mixed = asyncio.run(answers(flood_rate=0.5, flood_bytes=100))
    assert {len(text.encode()) for text in mixed} == {2, 100}
    assert asyncio.run(answers(flood_rate=0.5, flood_bytes=100)) == mixed


def test_latencies_have_the_named_shape() -> None:
    latency, draw = lognormal(median_s=0.05, p99_s=2.0), random.Random(0)
    seconds = sorted(latency(draw) for _ in range(20_000))
    assert median(seconds) == pytest.approx(0.05, rel=0.05)
    assert seconds[int(0.99 * len(seconds))] == pytest.approx(2.0, rel=0.15)
    assert steady(0.25)(draw) == 0.25
    with pytest.raises(ValueError, match=r"0 < median_s <= p99_s; got median_s=2 and p99_s=1"):
        lognormal(2.0, 1.0)


MISTAKEN = """
import rlfactory_core
@rlfactory_core.tool
def look(name: str) -> str:
    "Look."
class Mistaken(rlfactory_core.Task):
    def samples(self, split):
        return [rlfactory_core.Sample("1", "Who?", "Ann", split=split)]
    MISTAKE
@rlfactory_core.hookimpl
def rlfactory_tasks(register):
    register("mistaken", Mistaken)
"""


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (
            "make_env = lambda self, *given: None",
            "The environment is None, which has no method",
        ),
        ("tools = look", "tools is <tool look>; expected a list of tools"),
    ],
)
def test_an_authors_mistakes_are_told_in_words(tmp_path: Path, mistake: str, told: str) -> None:
    (tmp_path / "mistaken.py").write_text(MISTAKEN.replace("MISTAKE", mistake))
    with pytest.raises(RlfactoryError, match=told), TaskBench(str(tmp_path / "mistaken.py")) as bench:
        bench.play(constant("x"), bench.samples(limit=1))
