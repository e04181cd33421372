"""Answers from a gold query's rows: what its ORDER BY and LIMIT leave open, and what they do not."""

from __future__ import annotations

from rlfactory_nl2sql.checks.ordering import Untied
from rlfactory_nl2sql.comparison.answer import Answer, Tie, answer_of
from rlfactory_nl2sql.connection import Rows

ROWS = Rows(("name",), (("a",), ("b",), ("b",), ("c",)))
RANKED = Rows(
    ("name", "rank"), (("a", 1), ("b", 2), ("b", 2), ("c", 2), ("d", 3.0), ("e", 3), ("f", None), ("g", None))
)


def untied(keys: int = 1, limit: int | None = None, offset: int = 0) -> Untied:
    return Untied("", keys, limit, offset)


def ties(answer: Answer) -> list[tuple[str, int]]:
    assert answer.columns == ("name",)
    return [("".join(name for (name,) in tie.rows), tie.take) for tie in answer.ties]


def ranked(limit: int | None = None, offset: int = 0) -> list[tuple[str, int]]:
    return ties(answer_of(RANKED, ordered=True, untied=untied(1, limit, offset)))


def test_without_ties_known_the_order_is_all_or_nothing() -> None:
    assert ties(answer_of(ROWS, ordered=False, untied=None)) == [("abbc", 4)]
    assert ties(answer_of(ROWS, ordered=True, untied=None)) == [("a", 1), ("b", 1), ("b", 1), ("c", 1)]


def test_rows_of_equal_sort_keys_are_a_tie() -> None:
    assert ranked() == [("a", 1), ("bbc", 3), ("de", 2), ("fg", 2)]


def test_limit_and_offset_cut_through_ties() -> None:
    assert ranked(limit=3) == [("a", 1), ("bbc", 2)]
    assert ranked(limit=3, offset=3) == [("bbc", 1), ("de", 2)]
    assert ranked(limit=1, offset=2) == [("bbc", 1)]
    assert ranked(limit=4) == [("a", 1), ("bbc", 3)]
    assert ranked(limit=100, offset=7) == [("fg", 1)]
    assert ranked(limit=0) == []
    assert ranked(offset=100) == []


def test_limit_without_order_gives_any_rows() -> None:
    answer = answer_of(ROWS, ordered=False, untied=untied(0, limit=2, offset=1))
    assert ties(answer) == [("abbc", 2)]
    assert answer.size == 2


def test_no_rows_are_an_answer_too() -> None:
    none = Rows(("name", "rank"), ())
    assert answer_of(none, ordered=True, untied=untied()) == Answer(("name",), ())
    assert answer_of(none, ordered=False, untied=None).size == 0


def test_an_answer_can_be_compared_by_value() -> None:
    answer = Answer(("name",), (Tie((("a",),), 1),), fewest=1)
    assert answer_of(Rows(("name",), (("a",),)), ordered=False, untied=None) == answer
