"""Scores of a group's attempts against each other: rankings and pairs."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from itertools import combinations

import pytest
from rlfactory_judge.contract import RejectedError
from rlfactory_judge.forms import UnreadableError
from rlfactory_judge.scoring.group_judge import NEUTRAL, PairwiseJudge, RankingJudge
from scripted_judge import answered, attempt, broken, group, listed, make

BOTH = pytest.mark.parametrize("kind", [RankingJudge, PairwiseJudge])


def number_of(text: str) -> float:
    return -1.0 if text == NEUTRAL else float(text.split(maxsplit=1)[0])


def fair(question, _vote):
    """Ranks numbers, the larger the better; equal ones are equally good."""
    shown = [number_of(text) for text in listed(question)]
    order = sorted(set(shown), reverse=True)
    return json.dumps({"ranking": [[i + 1 for i, text in enumerate(shown) if text == number] for number in order]})


def first_is_best(question, _vote):
    """A judge that only looks at the position."""
    return json.dumps({"ranking": list(range(1, len(listed(question)) + 1))})


def numbers(*values: object):
    return group(*(attempt(answered(str(value))) for value in values))


def score(judge, attempts):
    return asyncio.run(judge.score_group(attempts))


def values(judge, attempts):
    return [one.value for one in score(judge, attempts)]


@BOTH
def test_the_best_answer_scores_one_and_the_worst_none_in_the_attempts_order(kind):
    judge, _ = make(kind, fair)

    assert values(judge, numbers(3, 1, 4, 2, 5)) == pytest.approx([0.5, 0.0, 0.75, 0.25, 1.0])


@BOTH
def test_equal_answers_are_shown_once_and_share_the_score(kind):
    judge, service = make(kind, fair)

    assert values(judge, numbers(2, 1, 2, 3, 1)) == pytest.approx([0.5, 0.0, 0.5, 1.0, 0.0])
    assert all(len(set(listed(question))) == len(listed(question)) for question in service.questions)


@BOTH
def test_answers_are_equal_whatever_was_said_before_them(kind):
    judge, service = make(kind, fair)
    one, other = attempt("I look.", answered("1")), attempt("So " + answered(" 1 "))

    assert values(judge, group(one, other)) == [0.5, 0.5]
    assert service.asked == []


@BOTH
def test_who_is_masked_or_wrote_nothing_is_not_shown(kind):
    judge, service = make(kind, fair)

    scores = score(judge, group(attempt("1"), broken(attempt("9")), attempt(), attempt("2"), attempt("")))

    assert [one.value for one in scores] == [0.0, 0.0, 0.0, 1.0, 0.0]
    assert [one.verdicts["judge"].passed for one in scores] == [False, None, False, True, False]
    assert all(sorted(listed(question)) == ["1", "2"] for question in service.questions)


@BOTH
def test_with_nothing_to_compare_it_scores_a_half_and_asks_nobody(kind):
    judge, service = make(kind, fair)

    assert values(judge, numbers(7)) == [0.5]
    assert service.asked == []


@BOTH
def test_the_order_of_the_attempts_does_not_change_what_is_asked(kind):
    asked = []
    for order in ((1, 2, 3, 4), (4, 2, 1, 3)):
        judge, service = make(kind, fair)
        score(judge, numbers(*order))
        asked.append(Counter(question.user for question in service.questions))

    assert asked[0] == asked[1]


def test_the_order_that_the_judge_sees_varies_from_group_to_group():
    judge, service = make(RankingJudge, fair)

    for base in range(200):
        score(judge, numbers(base, base + 1000))
    first = Counter(number_of(listed(question)[0]) < 1000 for question in service.questions)

    assert 70 < first[True] < 130


@BOTH
def test_two_votes_cancel_what_the_position_does(kind):
    judge, _ = make(kind, first_is_best, votes=2)

    assert values(judge, numbers(1, 2, 3, 4, 5)) == pytest.approx([0.5] * 5)


def test_pairs_are_asked_in_both_orders_also_with_a_single_vote():
    judge, service = make(PairwiseJudge, first_is_best)

    assert values(judge, numbers(1, 2, 3)) == pytest.approx([0.5] * 3)
    assert sorted(listed(question) for question in service.questions) == sorted(
        [first, second] for pair in combinations("123", 2) for first, second in (pair, pair[::-1])
    )


@pytest.mark.parametrize(("count", "pairs"), [(2, 1), (3, 3), (4, 6), (5, 10), (8, 24), (16, 64), (33, 198)])
def test_the_number_of_pairs_grows_little_faster_than_the_group_and_all_answers_have_as_many(count, pairs):
    judge, service = make(PairwiseJudge, fair)

    found = values(judge, numbers(*range(count)))

    asked = Counter(frozenset(listed(question)) for question in service.questions)
    assert len(asked) == pairs
    assert set(asked.values()) == {2}
    met = Counter(text for pair in asked for text in pair)
    assert max(met.values()) - min(met.values()) == 0
    assert found[0] == 0.0
    assert found[-1] == 1.0


def test_a_tie_is_half_a_win():
    judge, _ = make(PairwiseJudge, lambda *_: '{"ranking": [[1, 2]]}')

    assert values(judge, numbers(1, 2, 3)) == [0.5] * 3


def test_a_pair_that_cannot_be_read_in_one_order_counts_in_none():
    def answer(question, vote):
        return "Hm." if listed(question) == ["2", "1"] else fair(question, vote)

    judge, _ = make(PairwiseJudge, answer)
    scores = score(judge, numbers(1, 2, 3, 4))

    assert [one.value for one in scores] == pytest.approx([0.0, 0.0, 2 / 3, 1.0])
    assert sum(one.counts.get("unreadable", 0) for one in scores) == 1
    assert sum(one.counts.get("replies", 0) for one in scores) == 11


@BOTH
@pytest.mark.parametrize("failure", ["Hm.", RejectedError("it is too long")])
@pytest.mark.parametrize(("shown", "expected"), [((1, 2, 3, 4), [0.0, 0.5, 0.0, 1.0]), ((3, 4), [0.0, 0.5])])
def test_an_answer_that_cannot_be_judged_scores_nothing_and_the_others_are_compared(kind, failure, shown, expected):
    judge, service = make(kind, lambda question, vote: failure if "3" in listed(question) else fair(question, vote))

    scores = score(judge, numbers(*shown))

    assert [one.value for one in scores] == pytest.approx(expected)
    assert scores[shown.index(3)].verdicts["judge"].passed is False
    assert "this one not" in scores[shown.index(3)].verdicts["judge"].reasons[0]
    total = Counter()
    for one in scores:
        total.update(one.counts)
    assert total["replies"] + total["unreadable"] + total["refused"] == len(service.asked)


@BOTH
def test_a_group_of_which_no_answer_can_be_judged_is_masked(kind):
    judge, _ = make(kind, lambda *_: "Hm.")

    with pytest.raises(UnreadableError):
        score(judge, numbers(1, 2, 3, 4))


@BOTH
def test_a_comparison_that_fails_although_each_answer_can_be_judged_masks_the_group(kind):
    judge, _ = make(kind, lambda question, vote: fair(question, vote) if NEUTRAL in listed(question) else "Hm.")

    with pytest.raises(UnreadableError):
        score(judge, numbers(1, 2, 3, 4))


def test_a_ranking_that_cannot_be_read_is_dropped_while_a_majority_can():
    judge, _ = make(RankingJudge, lambda question, vote: "Hm." if vote == 1 else fair(question, vote), votes=3)

    assert values(judge, numbers(1, 2, 3)) == pytest.approx([0.0, 0.5, 1.0])


@BOTH
def test_the_cost_of_a_group_is_counted_once(kind):
    judge, service = make(kind, fair)

    scores = score(judge, group(broken(attempt("0")), *numbers(1, 2, 3).trajectories))

    assert sum(one.counts.get("requests", 0) for one in scores) == len(service.asked)


def test_the_verdict_says_where_an_answer_stood():
    judge, service = make(RankingJudge, fair)

    scores = score(judge, numbers(1, 2, 3))

    shown = listed(service.questions[0])
    for number, (one, place) in enumerate(zip(scores, (3, 2, 1), strict=True), 1):
        data = one.verdicts["judge"].data
        assert data["place"] == place
        assert shown[data["shown_as"] - 1] == str(number)


def test_a_judge_that_is_right_most_of_the_time_still_finds_the_order():
    rng = random.Random(1)

    def answer(question, vote):
        order = json.loads(fair(question, vote))["ranking"]
        return json.dumps({"ranking": order[::-1] if rng.random() < 0.1 else order})

    judge, _ = make(PairwiseJudge, answer, votes=3)
    found = values(judge, numbers(*range(8)))

    assert sorted(range(8), key=found.__getitem__)[-1] >= 6
