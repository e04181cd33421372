from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlfactory_judge.trust.labels import EXAMPLE, LabelledAnswer, LabelledPair, Labels, read_labels, write_labels

from rlfactory_core.errors import DataError

GOOD = {"prompt": "What is 2 + 3?", "answer": "It is 5.", "truth": "5", "label": True}
PAIR = {"prompt": "What is 2 + 3?", "answers": ["6", "5"], "truth": ["5", "five"], "better": 1}


def write(path: Path, *rows: Any) -> Path:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def read(path: Path, low: float = 0.0, high: float = 10.0) -> Labels:
    return read_labels(path, low=low, high=high)


def test_answers_and_pairs_of_one_file(tmp_path: Path) -> None:
    found = read(
        write(tmp_path / "l.jsonl", GOOD, "", {**PAIR, "id": "p"}, {**GOOD, "label": 7, "truth": None, "by": "x"})
    )
    assert found.answers == (
        LabelledAnswer("1", "What is 2 + 3?", "It is 5.", ("5",), True),
        LabelledAnswer("4", "What is 2 + 3?", "It is 5.", (), 7.0),
    )
    assert found.pairs == (LabelledPair("p", "What is 2 + 3?", ("6", "5"), ("5", "five"), 1),)


def test_the_example_that_messages_show_is_read(tmp_path: Path) -> None:
    found = read(write(tmp_path / "l.jsonl", EXAMPLE))
    assert [row.label for row in found.answers] == [True, False]
    assert found.pairs[0].better == 1


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{", "Invalid JSON"),
        ("[1]", "Input should be an object, got [1]"),
        ("[" * 100_000, "Invalid JSON: recursion limit exceeded"),
        (
            {"prompt": "?", "answer": "5", "lable": True},
            'label: Field required, got {"prompt": "?", "answer": "5", "lable": true}',
        ),
        ({"prompt": "?", "label": True}, "answer: Field required"),
        ({"prompt": "?", "answers": ["a", "b"]}, "better: Field required"),
        ({**GOOD, "answers": ["a", "b"]}, "better: Field required"),
        ({**GOOD, "prompt": " "}, "prompt: String should match"),
        ({**GOOD, "prompt": [1]}, "prompt: Input should be a valid string, got [1]"),
        ({**GOOD, "answer": None}, "answer: Input should be a valid string, got null"),
        ({**GOOD, "truth": {"a": 1}}, "truth: "),
        ({**GOOD, "truth": ["a", None]}, "truth: "),
        ({**GOOD, "label": "true"}, 'label: bool: Input should be a valid boolean, got "true"; label: float: '),
        ({**GOOD, "label": 11}, "label: 11 is not on the scale"),
        ('{"prompt": "?", "answer": "5", "label": NaN}', "label: bool: Input should be a valid boolean, got NaN"),
        ('{"prompt": "?", "answer": "5", "label": 1' + 400 * "0" + "}", "label: "),
        ({**PAIR, "answers": ["a"]}, "answers: 1: Field required"),
        ({**PAIR, "better": 2}, "better: Input should be less than or equal to 1, got 2"),
        ({**PAIR, "better": True}, "better: Input should be a valid integer, got true"),
        (
            '{"prompt": "?", "answer": "\\ud800", "label": true}',
            "Invalid JSON: unexpected end of hex escape",
        ),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path: Path, row: Any, words: str) -> None:
    with pytest.raises(DataError) as caught:
        read(write(tmp_path / "l.jsonl", GOOD, row))
    assert "have 1 line that cannot be used" in str(caught.value)
    assert f"line 2: {words}" in str(caught.value)
    assert EXAMPLE in str(caught.value)


def test_ten_problems_are_listed_and_the_rest_counted(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(write(tmp_path / "l.jsonl", GOOD, *[{"prompt": "?"}] * 13))
    text = str(caught.value)
    assert "13 lines that cannot be used" in text
    assert "line 11:" in text
    assert "line 12:" not in text
    assert "and 3 more" in text


def test_ids_have_to_differ(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 3: the id 'x' is also that of another line"):
        read(write(tmp_path / "l.jsonl", {**GOOD, "id": "x"}, GOOD, {**PAIR, "id": "x"}))


def test_zero_and_one_on_a_wide_scale_are_asked_about(tmp_path: Path) -> None:
    path = write(tmp_path / "l.jsonl", {**GOOD, "label": 1}, {**GOOD, "label": 0})
    with pytest.raises(DataError, match="all 0 or 1, and the scale goes from 0 to 10"):
        read(path)
    assert [row.label for row in read(path, high=1.0).answers] == [1.0, 0.0]


def test_a_missing_or_an_empty_file_shows_the_format(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="have no rows"):
        read(write(tmp_path / "l.jsonl", "", ""))
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="as UTF-8"):
        read(tmp_path / "b.jsonl")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
prompts = texts.filter(lambda text: bool(text.strip()))
truths = st.lists(texts, max_size=2).map(tuple)
labels = st.booleans() | st.floats(2.0, 10.0)
better = st.sampled_from([0, 1, None])


@given(
    st.lists(st.tuples(prompts, texts, truths, labels), max_size=4),
    st.lists(
        st.tuples(prompts, st.tuples(texts, texts), truths, st.sampled_from([0, 1, None])), min_size=1, max_size=3
    ),
)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, answers: Any, pairs: Any) -> None:
    whole = Labels(
        tuple(LabelledAnswer(f"a{n}", *row) for n, row in enumerate(answers)),
        tuple(LabelledPair(f"p{n}", *row) for n, row in enumerate(pairs)),
    )
    path = tmp_path_factory.mktemp("labels") / "deep" / "l.jsonl"
    write_labels(path, whole)
    assert read(path) == whole
