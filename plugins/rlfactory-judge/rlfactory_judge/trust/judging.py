"""Ask the judge about labelled answers and pairs as in a run, and keep the result of each question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rlfactory_core.types import Message, Sample, StopReason, Trajectory, Turn
from rlfactory_judge.contract import Question, RefusedError, Reply, Service, UnavailableError, UnreadableError
from rlfactory_judge.forms.preference import PreferenceForm
from rlfactory_judge.forms.ranking import RankingForm
from rlfactory_judge.forms.score import ScoreForm
from rlfactory_judge.forms.turns import TurnScoresForm
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.rubric import Rubric
from rlfactory_judge.service.polling import majority, medians, poll
from rlfactory_judge.trust.labels import LabelledAnswer, LabelledPair

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of one judgement with all its votes."""

    replies: tuple[Reply, ...] = ()  # empty: the judgement failed
    failure: str = ""  # "unreadable" or "unavailable"
    message: str = ""  # of the failure

    @property
    def values(self) -> tuple[float, ...]:
        """The median vote at each place, on [0, 1]."""
        return medians(self.replies)

    def accepts(self, threshold: float) -> bool:
        """Whether more than half of the votes reach the threshold, as in the mode ``outcome``."""
        return majority(self.replies, threshold)

    @property
    def tokens(self) -> int:
        return sum(reply.prompt_tokens + reply.sampled_tokens for reply in self.replies)

    @property
    def seconds(self) -> float:
        """The time of the slowest vote, since votes are concurrent."""
        return max((reply.seconds for reply in self.replies), default=0.0)

    @property
    def cached(self) -> bool:
        return all(reply.cached for reply in self.replies)


async def judge(service: Service, question: Question, votes: int, *, first: int = 0) -> Judged:
    """One judgement as in a run; a majority of its votes, which are numbered from ``first``, must succeed.

    Raises:
        BudgetError: the judge's tokens are spent.
    """
    try:
        return Judged((await poll(service, question, votes, first=first)).replies)
    except (UnreadableError, RefusedError) as error:
        return Judged(failure="unreadable", message=str(error))
    except UnavailableError as error:
        return Judged(failure="unavailable", message=str(error))


def answer_question(rubric: Rubric, options: JudgeOptions, row: LabelledAnswer, answer: str | None = None) -> Question:
    """Whether an answer is right; in the mode ``process`` as a trajectory of one turn.

    Args:
        answer: replaces the row's own.
    """
    said = row.answer if answer is None else answer
    if options.mode == "process":
        form = TurnScoresForm(1, options.low, options.high)
        return rubric.question(as_trajectory(row.prompt, said, row.truth), form)
    return rubric.question_of_text(
        prompt=row.prompt, answer=said, truth=row.truth, form=ScoreForm(options.low, options.high)
    )


def pair_question(rubric: Rubric, options: JudgeOptions, row: LabelledPair, *, swapped: bool) -> Question:
    """Which of two answers is better; ``swapped``: the second one stands first."""
    answers = row.answers[::-1] if swapped else row.answers
    candidates = [as_trajectory(row.prompt, answer, row.truth, place) for place, answer in enumerate(answers)]
    return rubric.question_of_many(candidates, RankingForm(2) if options.mode == "ranking" else PreferenceForm())


def as_trajectory(prompt: str, answer: str, truth: Sequence[str], attempt: int = 0) -> Trajectory:
    """A trajectory of a single turn with the answer."""
    turn = Turn((), (), (), Message("assistant", answer))
    return Trajectory(Sample("label", prompt, tuple(truth) or None), attempt, (turn,), StopReason.FINAL_ANSWER)


async def each(items: Iterable[Item], work: Callable[[Item], Awaitable[None]], at_once: int) -> None:
    """Run ``work`` for every item, ``at_once`` at a time. The first error cancels the rest."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    workers = [asyncio.ensure_future(worker()) for _ in range(at_once)]
    try:
        await asyncio.gather(*workers)
    finally:
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
