"""Reading a judge's answer, whatever it is: a verdict on the scale or none, quickly."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from effort import modest_effort
from hypothesis import example, given, settings
from hypothesis import strategies as st
from judge_forms import FORMS, TEN
from rlfactory_judge.forms import Form, RankingForm, UnreadableError

FILLER = st.text(max_size=40)
PIECES = st.sampled_from(
    [
        '{"score": ',
        '{"scores": [',
        '{"ranking": [',
        '{"better": "',
        "}",
        "]",
        '"',
        "score: ",
        "Score: 7/10",
        "[[",
        "]]",
        "{",
        "[",
        r"\boxed{",
        "<score>",
        "</score>",
        "<think>",
        "</think>",
        "```json\n",
        "```",
        "Turn 1: ",
        "Turn 2: ",
        "Turn 3: ",
        "1 > 2 > 3",
        "7",
        "10",
        "/",
        "%",
        "-",
        ",",
        ".",
        "\n",
        " ",
        "1e999",
        "NaN",
        "A",
        "tie",
        "better: ",
        "ranking: ",
        "<|channel|>final<|message|>",
        "\u0663",
        "\ud800",
    ]
)
ANSWERS = st.one_of(st.lists(st.one_of(PIECES, FILLER), max_size=24).map("".join), st.text())


@pytest.mark.slow
@pytest.mark.parametrize(("form", "count"), FORMS.values(), ids=FORMS)
@settings(max_examples=150, deadline=None)
@given(text=ANSWERS)
@example(text='{"score": 7}')
def test_any_text_is_a_verdict_on_the_scale_or_unreadable(form: Form, count: int, text: str) -> None:
    try:
        values = form.read(text)
    except UnreadableError:
        return
    assert len(values) == count
    assert all(0.0 <= value <= 1.0 for value in values)


@settings(max_examples=100, deadline=None)
@given(score=st.integers(0, 10), before=FILLER, thought=ANSWERS)
def test_a_final_object_counts_whatever_was_thought_before(score: int, before: str, thought: str) -> None:
    assert TEN.read(f'{before}{thought}</think>\n{{"score": {score}}}') == (score / 10,)


@settings(max_examples=100, deadline=None)
@given(order=st.permutations(range(1, 8)))
def test_rankings_are_evenly_spaced(order: list[int]) -> None:
    values = RankingForm(7).read(json.dumps({"ranking": order}))
    assert [values[number - 1] for number in order] == pytest.approx([1 - place / 6 for place in range(7)])


BOMBS: dict[str, Callable[[int], str]] = {
    "digits": lambda size: "1" * size,
    "score of digits": lambda size: '{"score": ' + "9" * size + "}",
    "spoken digits": lambda size: "score: " + "9" * size,
    "digits behind a point": lambda size: "score: 0." + "3" * size,
    "lists": lambda size: "[" * size,
    "objects": lambda size: '{"a":' * (size // 5),
    "long answer": lambda size: "word " * size,
    "closed objects": lambda size: '{"a":' * (size // 6) + "1" + "}" * (size // 6),
    "empty objects": lambda size: '{"a":[' + "{}," * (size // 3),
    "many verdicts": lambda size: '{"score": 7} ' * (size // 13),
    "labels": lambda size: "score: " * (size // 7),
    "chain": lambda size: "1 > " * (size // 4),
    "brackets": lambda size: "[[1]] " * (size // 6),
    "tags": lambda size: "<score>" * (size // 7),
    "closing tags": lambda size: "7" + "</b>" * (size // 4),
    "spaces": lambda size: "score" + " " * size + ": 7",
    "stars": lambda size: "*" * size + "7" + "*" * size,
    "thoughts": lambda size: "<think></think>" * (size // 15) + "7",
    "lines": lambda size: "\n" * size,
    "turns": lambda size: "turn 1: 7\n" * (size // 10),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize(("form", "count"), FORMS.values(), ids=FORMS)
def test_hostile_answers_take_no_time(form: Form, count: int, bomb: Callable[[int], str]) -> None:
    text = bomb(100_000)
    with modest_effort(), suppress(UnreadableError):
        assert len(form.read(text)) == count
