"""A judge without a model: a service whose replies a test's function gives, and attempts to be judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rlfactory_judge.contract import Question, Reply
from rlfactory_judge.forms import Form
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.rubric import final_answer
from rlfactory_judge.scoring.judge import Judge

from rlfactory_core.types import Fault, FaultKind, Group, Message, Sample, StopReason, Trajectory, Turn

Answer = Callable[[Question, int], str | Exception]
"""From a question and the number of its vote to what the judge writes, or to how it fails."""


class ScriptedJudge:
    """A service; the replies are read by the questions' own forms. Also a `JudgeService` without a server."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[tuple[Question, int]] = []
        self.opened: list[Any] = []
        self.closed = 0
        self.endpoint: tuple[str, str] | None = None
        self.model = "scripted"

    @property
    def questions(self) -> list[Question]:
        return [question for question, _ in self.asked]

    async def open(self, folder: Any) -> None:
        self.opened.append(folder)

    async def ask(self, question: Question, *, sample: int = 0) -> Reply:
        self.asked.append((question, sample))
        text = self._answer(question, sample)
        if isinstance(text, Exception):
            raise text
        cost = Reply((), text, prompt_tokens=100, sampled_tokens=10, attempts=1, endpoint="scripted")
        return replace(cost, values=question.form.read(text))

    def describe(self) -> str:
        return "scripted"

    def use_endpoint(self, url: str, model: str) -> None:
        self.endpoint = (url, model)

    async def close(self) -> None:
        self.closed += 1


def attempt(*texts: str, truth: Any = "red", prompt: str = "What colour is Bale?", number: int = 0) -> Trajectory:
    """One attempt whose turns say these texts; none: it wrote nothing."""
    turns = tuple(Turn((), (1,), (0.0,), Message("assistant", text)) for text in texts)
    return Trajectory(Sample("bale", prompt, truth), number, turns, StopReason.FINAL_ANSWER)


def broken(trajectory: Trajectory) -> Trajectory:
    """The same, masked by an infra fault."""
    return replace(trajectory, faults=(Fault(FaultKind.INFRA, "search", "no answer"),))


def group(*attempts: Trajectory) -> Group:
    numbered = tuple(replace(one, attempt=number) for number, one in enumerate(attempts))
    return Group(numbered[0].sample, numbered)


def answered(text: str) -> str:
    return f"<answer>{text}</answer>"


class PlainRubric:
    """Asks in words that tests can read: the answers in lines of their own, ``1: blue``."""

    fingerprint = "plain"

    def question(self, trajectory: Trajectory, form: Form) -> Question:
        turns = "".join(f"turn: {turn.message.content}\n" for turn in trajectory.turns)
        return Question("Judge.", f"{trajectory.sample.prompt}\n{turns}", form)

    def question_of_many(self, trajectories: Sequence[Trajectory], form: Form) -> Question:
        lines = (f"{number}: {final_answer(one).strip()}\n" for number, one in enumerate(trajectories, 1))
        return Question("Compare.", "".join(lines), form)


def listed(question: Question) -> list[str]:
    """The answers that a question of many shows, in their order."""
    return [line.partition(": ")[2] for line in question.user.splitlines()]


def make(judge: type[Judge], answer: Answer, **options: Any) -> tuple[Any, ScriptedJudge]:
    """A judge of some mode that asks a scripted service, and that service."""
    service = ScriptedJudge(answer)
    return judge(JudgeOptions(**options), PlainRubric(), service), service  # type: ignore[arg-type]
