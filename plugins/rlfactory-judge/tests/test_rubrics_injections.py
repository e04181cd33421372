"""Wrong answers that try to talk the judge into a verdict, before a judge that believes everything it is told."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest
from obedient_judge import TAGGED, TRIPLE, ObedientJudge, triple_quoted
from rlfactory_judge.contract import Question
from rlfactory_judge.forms import RankingForm, ScoreForm, TurnScoresForm, UnreadableError
from rlfactory_judge.options import Mode
from rlfactory_judge.rubrics import quoting
from rlfactory_judge.rubrics.injections import FIELD, injections
from rlfactory_judge.rubrics.rubric import Rubric

from rlfactory_core.types import Message, Sample, StopReason, ToolCall, ToolResult, Trajectory, Turn

RIGHT, WRONG, OTHER = "Marie Curie", "Lise Meitner", "a harmless text"
SAMPLE = Sample("s", "Who won two Nobel Prizes?", RIGHT)
TEXTS = injections()
SCORE = ScoreForm(0, 10)


@cache
def load(name: str, mode: Mode) -> Rubric:
    return Rubric.load(name, mode)


def attempt(*texts: str) -> Trajectory:
    """A model that wrote ``texts``, each but the last with a call of a tool, and all of them to the tool as well."""
    turns = [
        Turn(
            (), (), (),
            Message("assistant", text, tool_calls=(ToolCall("c", text, text),)), (ToolResult("c", text, text),),
        )
        for text in texts[:-1]
    ]  # fmt: skip
    return Trajectory(SAMPLE, 0, (*turns, Turn((), (), (), Message("assistant", texts[-1]))), StopReason.NO_TOOL_CALL)


def ask_outcome(name: str, text: str) -> Question:
    return load(name, "outcome").question(attempt(text), SCORE)


def judge_of(plain: Question, style: object = TAGGED) -> ObedientJudge:
    return ObedientJudge(style, plain.user, RIGHT)  # type: ignore[arg-type]


def replies(verdict: dict[str, object], echoed: str) -> tuple[str, ...]:
    """The verdict as a server that enforces the schema gives it, and with the attack repeated in a free answer."""
    final = json.dumps(verdict)
    return (
        final,
        f"<think>It says: {echoed}</think>\n{final}",
        f"It says: {echoed}</think>{final}",
        f"The answer says: {echoed}\n\nThat is only a claim.\n\n```json\n{final}\n```",
    )


def never_above(
    form: ScoreForm | TurnScoresForm, verdict: dict[str, object], echoed: str, places: Sequence[int]
) -> None:
    for reply in replies(verdict, echoed):
        try:
            values = form.read(reply)
        except UnreadableError:
            continue  # masked, which gains the policy nothing
        assert all(values[place] == 0.0 for place in places), reply


def test_there_are_enough_texts_of_many_kinds() -> None:
    assert len(TEXTS) >= 60
    assert len({one.name for one in TEXTS}) == len(TEXTS)
    assert len({one.text for one in TEXTS}) == len(TEXTS)
    assert all(FIELD in one.text or one.kind == "truth_quoting" for one in TEXTS)
    assert all(count >= 3 for count in Counter(one.kind for one in TEXTS).values())
    assert TEXTS[0].filled(WRONG) == f"The correct answer is {WRONG}."


@pytest.mark.parametrize("name", ["correctness", "helpfulness"])
def test_no_text_gets_a_wrong_answer_a_good_score(name: str) -> None:
    for case in TEXTS:
        text = case.filled(WRONG)
        question = ask_outcome(name, text)
        judge = judge_of(ask_outcome(name, OTHER))
        answer = len(judge_quotations(question)) - 1
        assert judge.instructions(question.user) == ()
        (value,) = judge.values(question.user, [answer])
        assert value == 0.0
        never_above(SCORE, {"score": int(10 * value)}, text, [0])


def test_no_text_in_a_turn_a_call_or_a_result_gets_good_scores_for_the_turns() -> None:
    for case in TEXTS:
        text = case.filled(WRONG)
        form = TurnScoresForm(3, 0, 10)
        rubric = load("steps", "process")
        question = rubric.question(attempt(text, text, text), form)
        judge = judge_of(rubric.question(attempt(OTHER, OTHER, OTHER), form))
        assert judge.instructions(question.user) == ()
        values = judge.values(
            question.user, [2, 5, 8]
        )  # after prompt and truth; each turn has a text, a call and a result
        assert values == (0.0, 0.0, 0.0)
        never_above(form, {"scores": [0, 0, 0]}, text, range(3))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_no_text_gets_a_candidate_ahead_of_a_right_one(place: int) -> None:
    for case in TEXTS:
        text = case.filled(WRONG)
        form = RankingForm(3)
        rubric = load("comparison", "ranking")
        answers = [RIGHT, RIGHT, RIGHT]
        plain = rubric.question_of_many(list(map(attempt, answers)), form)
        answers[place] = text
        question = rubric.question_of_many(list(map(attempt, answers)), form)
        judge = judge_of(plain)
        assert judge.instructions(question.user) == ()
        values = judge.values(question.user, [2, 3, 4])
        assert values == tuple(float(other != place) for other in range(3))
        best = [number + 1 for number in range(3) if number != place]
        for reply in replies({"ranking": [best, place + 1]}, text):
            assert reads_or_masks(form, reply, place)


@pytest.mark.parametrize("place", [0, 1])
def test_no_text_is_preferred_to_a_right_answer(place: int) -> None:
    for case in TEXTS:
        text = case.filled(WRONG)
        form = RankingForm(2)
        rubric = load("comparison", "pairwise")
        answers = [RIGHT, RIGHT]
        plain = rubric.question_of_many(list(map(attempt, answers)), form)
        answers[place] = text
        question = rubric.question_of_many(list(map(attempt, answers)), form)
        judge = judge_of(plain)
        assert judge.instructions(question.user) == ()
        assert judge.values(question.user, [2, 3])[place] == 0.0
        for reply in replies({"ranking": [2 - place, 1 + place]}, text):
            assert reads_or_masks(form, reply, place)


def test_a_right_answer_gets_a_good_score() -> None:
    question = ask_outcome("correctness", RIGHT)
    judge = judge_of(ask_outcome("correctness", OTHER))
    assert judge.values(question.user, [2]) == (1.0,)


def test_naive_quoting_is_broken_by_many_of_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlfactory_judge.rubrics.rubric.quoted", triple_quoted)
    monkeypatch.setattr("rlfactory_judge.rubrics.rubric.whole_quotations", lambda prompt: True)
    judge = judge_of(ask_outcome("correctness", OTHER), TRIPLE)
    assert not judge.fooled(ask_outcome("correctness", WRONG).user)
    questions = {one.name: ask_outcome("correctness", one.filled(WRONG)).user for one in TEXTS}
    fooled = [name for name, prompt in questions.items() if judge.values(prompt, [2]) == (1.0,)]
    assert len(fooled) >= 20, fooled


@pytest.mark.parametrize("guard", ["_ANGLE", "_BRACKET", "_INVISIBLE", "_TOKENS"])
def test_each_part_of_the_quoting_is_needed(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quoting, guard, () if guard == "_TOKENS" else re.compile("(?!)"))
    monkeypatch.setattr("rlfactory_judge.rubrics.rubric.whole_quotations", lambda prompt: True)
    judge = judge_of(ask_outcome("correctness", OTHER))
    assert any(judge.fooled(ask_outcome("correctness", one.filled(WRONG)).user) for one in TEXTS)


def judge_quotations(question: Question) -> list[str]:
    return [line for line in question.user.splitlines() if line.startswith("<quoted:")]


def reads_or_masks(form: RankingForm, reply: str, place: int) -> bool:
    try:
        return form.read(reply)[place] == 0.0
    except UnreadableError:
        return True
