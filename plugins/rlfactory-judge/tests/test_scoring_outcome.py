"""Scores of single attempts: as a whole, by votes, by turns."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from rlfactory_judge.contract import RefusedError, RejectedError
from rlfactory_judge.forms import TurnScoresForm, UnreadableError
from rlfactory_judge.scoring.judge import OutcomeJudge, ProcessJudge
from scripted_judge import answered, attempt, broken, make

from rlfactory_core.errors import VerifierError
from rlfactory_core.types import Sample

RED = attempt(answered("red"))


def score(judge, trajectory=RED):
    return asyncio.run(judge.score(trajectory))


def test_a_score_is_mapped_onto_the_unit_scale_and_its_verdict_says_how_it_came_about():
    judge, _ = make(OutcomeJudge, lambda *_: '{"score": 7}')

    found = score(judge)

    assert found.value == pytest.approx(0.7)
    verdict = found.verdicts["judge"]
    assert verdict.passed
    assert verdict.reasons == ('{"score": 7}',)
    assert verdict.data["raw"] == pytest.approx(7.0)
    assert verdict.data["endpoint"] == "scripted"
    assert found.counts == {"replies": 1, "requests": 1, "prompt_tokens": 100, "sampled_tokens": 10}


@pytest.mark.parametrize(("raw", "passed"), [(8, True), (7.9, False)])
def test_the_threshold_is_on_the_mapped_scale(raw, passed):
    judge, _ = make(OutcomeJudge, lambda *_: f"{raw}", threshold=0.75, low=2.0, high=10.0)

    assert asyncio.run(judge.verify(RED)).passed is passed


def test_the_median_of_the_votes_counts_and_their_spread_is_shown():
    judge, service = make(OutcomeJudge, lambda _, vote: f"{(2, 10, 6)[vote]}", votes=3)

    found = score(judge)

    assert found.value == pytest.approx(0.6)
    assert found.components == {"spread": pytest.approx(0.8)}
    assert found.verdicts["judge"].data["votes"] == [0.2, 1.0, 0.6]
    assert [vote for _, vote in service.asked] == [0, 1, 2]


def test_as_many_votes_against_as_for_do_not_pass():
    judge, _ = make(OutcomeJudge, lambda _, vote: f"{(0, 10)[vote]}", votes=2)

    found = score(judge)

    assert found.value == pytest.approx(0.5)
    assert found.verdicts["judge"].passed is False


def test_an_unreadable_vote_is_dropped_and_counted_while_a_majority_can_be_read():
    judge, _ = make(OutcomeJudge, lambda _, vote: ("8", "I cannot say", "4")[vote], votes=3)

    found = score(judge)

    assert found.value == pytest.approx(0.6)
    assert found.counts["unreadable"] == 1
    assert found.counts["replies"] == 2


def test_without_a_readable_majority_nobody_knows():
    judge, _ = make(OutcomeJudge, lambda _, vote: ("8", "I cannot say")[vote > 0], votes=3)

    with pytest.raises(UnreadableError, match="2 of 3 replies failed") as caught:
        score(judge)

    assert caught.value.counts["unreadable"] == 2
    assert caught.value.counts["sampled_tokens"] == 10


@pytest.mark.parametrize("fallback", ["mask", "stop"])
def test_an_unreadable_answer_is_a_fault_whatever_is_wanted_for_outages(fallback):
    judge, _ = make(OutcomeJudge, lambda *_: "Great work!", on_outage=fallback, on_budget=fallback)

    with pytest.raises(UnreadableError):
        score(judge)


@pytest.mark.parametrize("failure", [UnreadableError("cut off"), RejectedError("too long")])
def test_an_attempt_that_spoils_its_judgement_scores_0_where_others_of_its_sample_are_judged(failure):
    judge, _ = make(OutcomeJudge, lambda question, _: failure if "spoilt" in question.user else "8")

    async def at_once():
        return await asyncio.gather(*(judge.score(attempt(text)) for text in ("spoilt", "red", "spoilt again")))

    spoilt, red, again = asyncio.run(at_once())
    assert [spoilt.value, red.value, again.value] == [0.0, pytest.approx(0.8), 0.0]
    assert spoilt.verdicts["judge"].passed is False
    assert "this one not: " in spoilt.verdicts["judge"].reasons[0]
    with pytest.raises(type(failure)):  # of another sample, nothing was judged yet
        score(judge, replace(attempt("spoilt"), sample=Sample("other", "What?", "red")))


def test_an_outage_is_not_the_attempts_own_fault():
    gone = RefusedError("503, while other questions were answered")
    judge, _ = make(OutcomeJudge, lambda question, _: gone if "unlucky" in question.user else "8")
    score(judge)
    with pytest.raises(RefusedError):
        score(judge, attempt("unlucky"))


def test_a_failure_of_ours_is_not_taken_for_the_judges():
    judge, _ = make(OutcomeJudge, lambda *_: ZeroDivisionError("a bug"), votes=3)

    with pytest.raises(ZeroDivisionError):
        score(judge)


@pytest.mark.parametrize("kind", [OutcomeJudge, ProcessJudge])
def test_the_judge_is_not_asked_about_attempts_that_are_masked_or_wrote_nothing(kind):
    judge, service = make(kind, lambda *_: "10")

    assert score(judge, broken(RED)).verdicts["judge"].passed is None
    for nothing in (score(judge, attempt()), score(judge, attempt("")), score(judge, attempt(" \n"))):
        assert nothing.verdicts["judge"].passed is False
        assert nothing.value == sum(nothing.turn_rewards) == 0.0
    assert service.asked == []


def test_long_replies_are_shortened_in_the_verdict():
    judge, _ = make(OutcomeJudge, lambda *_: "well " * 2000 + '{"score": 3}')

    (reason,) = score(judge).verdicts["judge"].reasons

    assert len(reason) < 700
    assert reason.endswith('{"score": 3}')


def test_turns_share_the_reward_so_that_it_adds_up_to_their_mean():
    judge, service = make(ProcessJudge, lambda *_: '{"scores": [10, 0, 2]}')

    found = score(judge, attempt("a", "b", answered("red")))

    assert found.value == 0.0
    assert found.turn_rewards == pytest.approx((1 / 3, 0.0, 0.2 / 3))
    assert sum(found.turn_rewards) == pytest.approx(0.4)
    assert found.verdicts["judge"].data["turns"] == pytest.approx((1.0, 0.0, 0.2))
    assert len(service.asked) == 1
    assert service.questions[0].form.schema == TurnScoresForm(3, 0.0, 10.0).schema


def test_each_turn_has_its_own_median():
    scores = ("[0, 10]", "[4, 10]", "[10, 1]")
    judge, _ = make(ProcessJudge, lambda _, vote: f'{{"scores": {scores[vote]}}}', votes=3)

    assert score(judge, attempt("a", "b")).turn_rewards == pytest.approx((0.2, 0.5))


def test_a_judge_that_scores_too_few_turns_has_scored_none():
    judge, _ = make(ProcessJudge, lambda *_: '{"scores": [10]}')

    with pytest.raises(VerifierError):
        score(judge, attempt("a", "b"))
