"""Answers from a gold query's rows: what its ORDER BY and LIMIT leave open, and what they do not."""

from __future__ import annotations

from rlfactory_nl2sql.comparison.answer import Answer, Tie, answer_of, same_rows
from rlfactory_nl2sql.connection import Rows


def result(*values: object) -> Rows:
    return Rows(("name",), tuple((value,) for value in values))


ROWS = result(*"abbc")
READINGS = [result(*"abbcdefg"), result(*"acbbedgf")]


def ties(answer: Answer) -> list[tuple[str, int]]:
    assert answer.columns == ("name",)
    return [("".join(name for (name,) in tie.rows), tie.take) for tie in answer.ties]


def cut(limit: int | None = None, offset: int = 0) -> list[tuple[str, int]]:
    return ties(answer_of(READINGS, limit, offset, ordered=True))


def test_without_ties_known_the_order_is_all_or_nothing() -> None:
    assert ties(answer_of([ROWS], ordered=False)) == [("abbc", 4)]
    assert ties(answer_of([ROWS], ordered=True)) == [("a", 1), ("b", 1), ("b", 1), ("c", 1)]


def test_rows_that_change_places_are_a_tie() -> None:
    assert cut() == [("a", 1), ("bbc", 3), ("de", 2), ("fg", 2)]


def test_last_digits_and_letter_case_make_no_order() -> None:
    one, other = result(1, 0.1 + 0.2, 2), result(1, 0.3, 2)
    assert [tie.take for tie in answer_of([one, other], ordered=True).ties] == [1, 1, 1]
    assert same_rows([one, other])
    alike = result("Ann", "ann", "Bo")
    assert ties(answer_of([alike, alike], ordered=True, folded=True)) == [("Annann", 2), ("Bo", 1)]
    assert ties(answer_of([alike, alike], ordered=True)) == [("Ann", 1), ("ann", 1), ("Bo", 1)]


def test_limit_and_offset_cut_through_ties() -> None:
    assert cut(limit=3) == [("a", 1), ("bbc", 2)]
    assert cut(limit=3, offset=3) == [("bbc", 1), ("de", 2)]
    assert cut(limit=1, offset=2) == [("bbc", 1)]
    assert cut(limit=4) == [("a", 1), ("bbc", 3)]
    assert cut(limit=100, offset=7) == [("fg", 1)]
    assert cut(limit=0) == []
    assert cut(offset=100) == []


def test_limit_without_order_gives_any_rows() -> None:
    answer = answer_of([ROWS], 2, 1, ordered=False)
    assert ties(answer) == [("abbc", 2)]
    assert answer.size == 2


def test_no_rows_are_an_answer_too() -> None:
    assert answer_of([result()] * 2, ordered=True) == Answer(("name",), ())
    assert answer_of([result()], ordered=False).size == 0


def test_an_answer_can_be_compared_by_value() -> None:
    answer = Answer(("name",), (Tie((("a",),), 1),), fewest=1)
    assert answer_of([result("a")], ordered=False) == answer
