"""Labelled answers, a rubric that is plain data, and judges with a known character, for measuring how far to trust."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_judge.contract import Question, Reply
from rlfactory_judge.forms import Form, RankingForm, TurnScoresForm
from rlfactory_judge.trust.labels import LabelledAnswer, LabelledPair, Labels

from rlfactory_core.types import Trajectory

Score = Callable[[str, str, random.Random], float]  # answer, truth, a source of noise -> score on [0, 1]
Prefer = Callable[[str, str, str, random.Random], str]  # first, second, truth, noise -> "1", "2" or "tie"


class DataRubric:
    """A question is a JSON object with the answers and the truth."""

    fingerprint = "data"

    def question(self, trajectory: Trajectory, form: Form) -> Question:
        return self._ask([trajectory], form)

    def question_of_many(self, trajectories: Sequence[Trajectory], form: Form) -> Question:
        return self._ask(trajectories, form)

    def question_of_text(self, *, prompt: str, answer: str, truth: Sequence[str], form: Form) -> Question:
        return Question("Judge.", json.dumps({"prompt": prompt, "answers": [answer], "truth": [*truth]}), form)

    def _ask(self, trajectories: Sequence[Trajectory], form: Form) -> Question:
        sample = trajectories[0].sample
        answers = [one.turns[-1].message.content for one in trajectories]
        data = {"prompt": sample.prompt, "answers": answers, "truth": [*(sample.answer or ())]}
        return Question("Judge.", json.dumps(data), form)


class KnownJudge:
    """A service that judges as a function says; replies go through the questions' own forms.

    Args:
        score: of a single answer.
        prefer: of two; by default the one with the higher score.
        fail: an error for some questions, by the first answer.
    """

    def __init__(
        self, score: Score, prefer: Prefer | None = None, fail: Callable[[str], Exception | None] = lambda _: None
    ) -> None:
        self._score, self._prefer, self._fail = score, prefer, fail
        self.asked = 0
        self.at_once = self.most_at_once = 0

    async def identify(self) -> str:
        return "known"

    def describe(self) -> str:
        return "known"

    async def ask(self, question: Question, *, sample: int = 0) -> Reply:
        assert question.measures  # a kept reply may be of another model
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            data = json.loads(question.user)
            failure = self._fail(data["answers"][0])
            if failure is not None:
                raise failure
            text = json.dumps(self._said(question.form, data, random.Random(f"{question.user} {sample}")))
            return Reply(question.form.read(text), text, prompt_tokens=90, sampled_tokens=10, attempts=1, seconds=0.5)
        finally:
            self.at_once -= 1

    def _said(self, form: Form, data: dict[str, Any], noise: random.Random) -> dict[str, Any]:
        answers, truth = data["answers"], data["truth"][0]
        if isinstance(form, RankingForm):
            better = self._better(answers, truth, noise)
            return {"ranking": {"1": [1, 2], "2": [2, 1], "tie": [[1, 2]]}[better]}
        score = 10 * self._score(answers[0], truth, noise)
        return {"scores": [score]} if isinstance(form, TurnScoresForm) else {"score": score}

    def _better(self, answers: Sequence[str], truth: str, noise: random.Random) -> str:
        if self._prefer is not None:
            return self._prefer(answers[0], answers[1], truth, noise)
        first, second = (self._score(answer, truth, noise) for answer in answers)
        return "tie" if first == second else "1" if first > second else "2"


@dataclass(frozen=True)
class Text:
    """An injected text of the tests."""

    name: str
    text: str

    def filled(self, answer: str) -> str:
        return f"{answer} {self.text}"


def is_right(answer: str, truth: str) -> bool:
    return f"It is {truth}." in answer


def labelled(count: int, pairs: int = 0, seed: int = 0) -> Labels:
    """Every other answer right, in lengths that have nothing to do with it; every other pair's second one better."""
    rng = random.Random(seed)

    def said(number: int, right: bool) -> str:
        return "Let me see. " * rng.randrange(40) + f"It is {number if right else number + 1}."

    answers = [
        LabelledAnswer(f"a{n}", f"What is {n} + 0?", said(n, n % 2 == 0), (str(n),), n % 2 == 0) for n in range(count)
    ]
    both = [
        LabelledPair(
            f"p{n}", f"What is {n} + 0?", (said(n, n % 2 == 0), said(n, n % 2 == 1)), (str(n),), 0 if n % 2 == 0 else 1
        )
        for n in range(pairs)
    ]
    return Labels(tuple(answers), tuple(both))
