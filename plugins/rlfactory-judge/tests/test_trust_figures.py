from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from math import isnan, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlfactory_judge.trust.figures import (
    agreement_of_answers,
    agreement_of_pairs,
    kappa,
    share,
    verdicts_of,
)


@pytest.mark.parametrize(
    ("count", "size", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_intervals_of_shares_are_those_of_newcombe_1998(count: int, size: int, low: float, high: float) -> None:
    found = share(count, size)
    assert found is not None
    assert (found.value, found.n) == (count / size, size)
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_a_share_of_nothing_is_unknown() -> None:
    assert share(0, 0) is None
    with pytest.raises(ValueError, match="count from 0 to 3"):
        share(4, 3)


def kappa_of(observations: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    found = float(kappa(verdicts_of([[each] for each in observations])))
    return None if isnan(found) else found


def both(yes_yes: int, yes_no: int, no_yes: int, no_no: int) -> list[tuple[bool, bool]]:
    cells = {(True, True): yes_yes, (True, False): yes_no, (False, True): no_yes, (False, False): no_no}
    return [cell for cell, count in cells.items() for _ in range(count)]


@pytest.mark.parametrize(
    ("table", "expected"),
    [((20, 5, 10, 15), 0.4), ((45, 15, 25, 15), 0.1304), ((25, 35, 5, 35), 0.2593), ((0, 5, 5, 0), -1.0)],
)
def test_kappa_of_published_tables(table: tuple[int, int, int, int], expected: float) -> None:
    assert kappa_of(both(*table)) == pytest.approx(expected, abs=5e-5)


def test_kappa_of_three_categories_by_hand() -> None:
    rows = [("a", "a")] * 4 + [("b", "b")] * 3 + [("c", "c")] * 1 + [("a", "b")] * 1 + [("c", "a")] * 1
    by_chance = (5 * 5 + 3 * 4 + 2 * 1) / 100  # frequencies 5, 3, 2 and 5, 4, 1
    assert kappa_of(rows) == pytest.approx((0.8 - by_chance) / (1 - by_chance))


def test_where_kappa_is_undefined_it_says_so() -> None:
    assert kappa_of([(True, True)] * 5) is None
    assert kappa_of([(True, False)] * 5) == 0.0
    for observations in ([(True, True)] * 5, [(True, False), (True, True)]):
        found = agreement_of_answers(observations)
        assert found.kappa is None
        assert found.why_no_kappa == "all labels are the same"
        assert found.accuracy is not None
    assert agreement_of_answers([]).why_no_kappa == "nothing was judged"


observations = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40)


@given(observations)
def test_kappa_is_at_most_the_agreement_and_the_same_for_both_raters(rows: list[tuple[int, int]]) -> None:
    found, swapped = kappa_of(rows), kappa_of([(b, a) for a, b in rows])
    if found is not None:
        agreed = sum(a == b for a, b in rows) / len(rows)
        assert -1.0 <= found <= agreed + 1e-9
        assert swapped is None or swapped == pytest.approx(found)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=40).filter(lambda rows: len(set(rows)) > 1))
def test_kappa_of_equal_raters_is_one(rows: list[int]) -> None:
    assert kappa_of([(row, row) for row in rows]) == 1.0


@given(observations, st.randoms(use_true_random=False))
def test_kappa_does_not_depend_on_the_order_or_the_names(rows: list[tuple[int, int]], rng: random.Random) -> None:
    found = kappa_of(rows)
    assert kappa_of(rng.sample(rows, len(rows))) == pytest.approx(found)
    assert kappa_of([(f"c{a}", f"c{b}") for a, b in rows]) == pytest.approx(found)


def test_kappa_of_independent_raters_is_nothing_but_noise() -> None:
    rng = random.Random(1)
    found = [kappa_of([(rng.random() < 0.7, rng.random() < 0.4) for _ in range(100)]) for _ in range(100)]
    known = [one for one in found if one is not None]
    assert abs(sum(known) / len(known)) < 3 * 0.1 / sqrt(100)


def test_the_interval_of_kappa_holds_the_truth_about_as_often_as_it_says() -> None:
    rng = random.Random(2)
    held = 0
    for _ in range(50):  # a judge that is wrong with p = 0.2 has a kappa of 0.6 on balanced labels
        labels = [rng.random() < 0.5 for _ in range(80)]
        found = agreement_of_answers([(label, label != (rng.random() < 0.2)) for label in labels]).kappa
        assert found is not None
        held += found.low <= 0.6 <= found.high
    assert 44 <= held <= 50


def test_the_same_seed_gives_the_same_interval() -> None:
    rows = both(20, 5, 10, 15)
    assert agreement_of_answers(rows, seed=3) == agreement_of_answers(rows, seed=3)
    assert agreement_of_answers(rows, seed=3).kappa != agreement_of_answers(rows, seed=4).kappa


def test_no_disagreement_among_few_answers_is_no_proof() -> None:
    found = agreement_of_answers(both(3, 0, 0, 3))
    assert found.kappa is not None
    assert (found.kappa.value, found.kappa.high) == (1.0, 1.0)
    assert found.kappa.low == pytest.approx(0.2194, abs=1e-3)  # Wilson's bound of 6 of 6 is 0.6097
    many = agreement_of_answers(both(300, 0, 0, 300)).kappa
    assert many is not None
    assert many.low > 0.98


def test_confusion_counts_and_their_shares() -> None:
    confusion = agreement_of_answers(both(20, 5, 10, 15)).confusion
    assert confusion is not None
    assert (confusion.right_accepted, confusion.right_rejected) == (20, 5)
    assert (confusion.wrong_accepted, confusion.wrong_rejected) == (10, 15)
    assert confusion.false_accepts is not None
    assert confusion.false_rejects is not None
    assert (confusion.false_accepts.value, confusion.false_rejects.value) == (0.4, 0.2)


def test_pairs_count_once_however_often_they_are_asked() -> None:
    found = agreement_of_pairs([[(1, 1), (-1, 1)]] * 10)  # always the first place
    assert found.n == 10
    assert found.accuracy is not None
    assert found.accuracy.value == 0.5
    assert found.kappa is not None
    assert found.kappa.value == 0.0
