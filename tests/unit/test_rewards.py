"""Rewards: answers come from the model's own words, scorers fail into faults, and rules cost next to nothing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from reward_examples import SEARCH, trajectory

from rlfactory_core.errors import VerifierError
from rlfactory_core.rewards import F1, ExactMatch, Format, RewardLayer, exact_match, extract_answer, f1, normalize
from rlfactory_core.types import (
    Message,
    ToolCall,
    Trajectory,
)

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "qa_em.jsonl"


def score(scorer: object, item: Trajectory) -> float:
    scored = asyncio.run(RewardLayer({"it": (scorer, 1.0)}).score_trajectory(item))  # type: ignore[dict-item]
    assert not scored.faults
    assert scored.score is not None
    return scored.score.value


# --- answers ------------------------------------------------------------------------------------------------------

CONTESTED = "sources disagree: SQuAD gives 1 where nothing is left of both sides, another gives 0"
OTHER_TAG = "reads <search> tags, which is a tool-call syntax of another project and not an answer"


def qa_cases() -> list[object]:
    if not CASES.is_file():
        return [pytest.param({}, marks=pytest.mark.skip(reason="the recorded answer cases are not on this machine"))]
    params = []
    for index, line in enumerate(CASES.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        reason = OTHER_TAG if row["kind"] == "search_tag" else CONTESTED if row.get("contested") else ""
        marks = pytest.mark.skip(reason=reason) if reason else ()
        params.append(pytest.param(row, id=f"{row['kind']}-{index}", marks=marks))
    return params


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "no answer to compare with"),
        ({"city": "Paris"}, "is a dict; expected a text, or several"),
        (b"Paris", "is a bytes"),
    ],
)
def test_what_is_no_text_is_no_answer(answer: object, words: str) -> None:
    item = trajectory("<answer>city</answer>", answer=answer)
    with pytest.raises(VerifierError, match=words):
        asyncio.run(ExactMatch().score(item))


@pytest.mark.parametrize("row", qa_cases())
def test_agrees_with_recorded_cases(row: dict) -> None:
    if row["kind"] == "normalize":
        assert normalize(row["text"]) == row["expected"]
        return
    prediction = row["prediction"]
    text = "nothing" if prediction is None else f"<answer>{prediction}</answer>"
    item = trajectory(text, answer=row["golds"])
    assert score(ExactMatch(), item) == row["em"]
    assert score(F1(), item) == pytest.approx(row["f1"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer> a </answer>", "a"),
        ("<answer>a</answer> no: <answer>b\nc</answer>", "b\nc"),
        ("<answer>a</answer> <answer>b", "a"),
        ("<answer>a</answer></answer>", "a"),
        ("<answer>x <answer>a</answer>", "a"),
        ("<answer></answer>", ""),
        ("</answer>a<answer>", None),
        ("a", None),
    ],
)
def test_the_last_closed_answer_counts(text: str, expected: str | None) -> None:
    assert extract_answer(text) == expected


def test_finding_the_answer_takes_linear_time() -> None:
    assert extract_answer("<answer>" * 200_000) is None  # quadratic time would take minutes


def test_f1_and_exact_match_take_the_best_reference() -> None:
    assert exact_match("The Ann-Lee!", ["bob", "annlee"]) == 1.0
    assert f1("ann lee", ["bob", "ann b lee"]) == pytest.approx(0.8)
    assert f1("", ["bob"]) == 0.0
    assert f1("the", ["a"]) == 1.0


# --- rule scorers -------------------------------------------------------------------------------------------------


def test_a_tool_cannot_answer_and_neither_can_a_thought() -> None:
    tool_says = trajectory(SEARCH, "I do not know.", result="<answer>Ann Lee</answer>")
    thought = Message("assistant", "I do not know.", reasoning="<answer>Ann Lee</answer>")
    argument = ToolCall("call_0", "search", '{"q": "<answer>Ann Lee</answer>"}', {"q": "<answer>Ann Lee</answer>"})
    for item in (tool_says, trajectory(thought), trajectory(replace(SEARCH, tool_calls=(argument,)), "No.")):
        assert score(ExactMatch(), item) == 0.0
    assert score(ExactMatch(), trajectory(SEARCH, "<answer>the ann lee.</answer>")) == 1.0


@pytest.mark.parametrize("truth", ["Ann", ["Bob", "Ann"], ("Ann",)])
def test_ground_truth_may_be_one_or_several(truth: object) -> None:
    assert score(ExactMatch(), trajectory("<answer>ann</answer>", answer=truth)) == 1.0
    assert score(ExactMatch(), trajectory("<answer>1999</answer>", answer=1999)) == 1.0


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (trajectory(SEARCH, "So <answer>x</answer>"), 1.0),
        (trajectory("<answer>x</answer> indeed"), 0.0),
        (trajectory("<answer> </answer>"), 0.0),
        (trajectory("<answer>x</answer><answer>x</answer>"), 0.0),
        (trajectory("<answer>x</answer>", finish="length"), 0.0),
        (trajectory(SEARCH), 0.0),
        (trajectory(replace(SEARCH, content="<answer>x</answer>")), 0.0),
        (trajectory(replace(SEARCH, tool_calls=(ToolCall("c", "", "{", error="bad"),)), "<answer>x</answer>"), 0.0),
        (trajectory(), 0.0),
    ],
)
def test_format_wants_good_calls_and_one_answer_at_the_end(item: Trajectory, expected: float) -> None:
    assert score(Format(), item) == expected
