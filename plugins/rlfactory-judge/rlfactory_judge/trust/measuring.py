"""The measurement: the questions about labelled answers and pairs as in a run, and the judgements so far."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TypeVar

from rlfactory_core.errors import BackendError, DataError
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.utils.aio import gather_all
from rlfactory_judge.contract import BudgetError, Question, RefusedError, Reply, UnavailableError
from rlfactory_judge.forms import RankingForm, ScoreForm, TurnScoresForm, UnreadableError
from rlfactory_judge.options import SINGLE, JudgeOptions
from rlfactory_judge.rubrics.injections import Injection
from rlfactory_judge.rubrics.rubric import Rubric, one_turn
from rlfactory_judge.service.service import JudgeService, majority, medians, poll
from rlfactory_judge.trust.labels import LabelledAnswer, LabelledPair, Labels

Row = TypeVar("Row", bound=LabelledAnswer | LabelledPair)

_GIVES_UP = 8  # failures without any reply, after which the measurement ends
_MORE_TRIES = 3  # further attempts at a question, because a short outage must not lose the other labels


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


Judgements = dict[tuple[str, int], Judged]  # by the label's id and a number


@dataclass
class Measurement:
    """One measurement of a judge; its judgements may be read when `run` has ended.

    Raises:
        DataError: the labels have no rows for the options' mode.
    """

    service: JudgeService
    options: JudgeOptions
    labels: Labels
    rubric: Rubric
    pair_rubric: Rubric | None = None  # for pairs if the options' mode judges single answers; None: they are left out
    injections: Sequence[Injection] = ()  # put into each wrong answer
    injections_each: int = 0  # how many of them are tried in each answer, different ones in each; 0: all
    injected_most: int = 0  # wrong answers that injections are tried in; 0: all
    progress: Progress = field(default_factory=Progress)

    judge: str = field(default="", init=False)  # its model and endpoints, for people
    answers: Judgements = field(default_factory=dict, init=False)  # each numbered 0
    pairs: Judgements = field(default_factory=dict, init=False)  # 0: as in the file, 1: swapped
    injected: Judgements = field(default_factory=dict, init=False)  # by the number of the injected text
    stopped: str = field(default="", init=False)  # why there are fewer than planned

    def __post_init__(self) -> None:
        single = self.options.mode in SINGLE
        if not (self.labels.answers if single else self.labels.pairs):
            needed, keys = ("single answers", '"answer" and "label"') if single else ("pairs", '"answers" and "better"')
            raise DataError(
                f"The labels have no {needed}, which mode={self.options.mode} judges. Add rows with {keys}, or measure "
                f"mode={'pairwise' if single else 'outcome'}."
            )
        self.pair_rubric = self.pair_rubric if single else self.rubric
        self._failed = 0
        self._answered = False
        self._shuffled = list(self.injections)
        random.Random(self.options.seed).shuffle(self._shuffled)

    @property
    def judgements(self) -> list[Judged]:
        """All so far."""
        return [one for each in (self.answers, self.pairs, self.injected) for one in each.values()]

    async def run(self) -> None:
        """Measure the agreement first, then the rest. Raises `BackendError` if the judge does not answer at all."""
        self.judge = self.service.describe()
        answers = self.labels.answers if self.options.mode in SINGLE else ()
        pairs = self.labels.pairs if self.pair_rubric is not None else ()

        def injected(row: LabelledAnswer, number: int) -> Question:
            return self._about(replace(row, answer=self._shuffled[number].filled(row.answer)))

        in_both_orders = [(row, swapped) for row in pairs for swapped in (0, 1)]
        try:
            await self._stage("judging", "answer", [(row, 0) for row in answers], self.answers, self._about)
            await self._stage("comparing", "question", in_both_orders, self.pairs, self._about_pair)
            await self._stage("injecting", "answer", self._injections(), self.injected, injected)
        except BudgetError as error:
            self.stopped = str(error)

    async def _stage(
        self,
        name: str,
        unit: str,
        items: Sequence[tuple[Row, int]],
        judged: Judgements,
        about: Callable[[Row, int], Question],
    ) -> None:
        """Judge all items, as many at a time as may be asked about; the first error cancels the rest."""
        if not items:
            return
        self.progress.stage(name, len(items), unit)
        left, agreed = iter(items), list[bool]()

        async def worker() -> None:
            for row, number in left:
                one = judged[row.id, number] = await self._ask(about(row, number))
                if one.replies and isinstance(row, LabelledAnswer):
                    agreed.append(one.accepts(self.options.threshold) == right(row, self.options))
                self.progress.advance(1, **({"agreement": fmean(agreed)} if agreed else {}))

        at_once = max(1, self.options.concurrency // self.options.votes)
        await gather_all(worker() for _ in range(at_once))

    async def _ask(self, question: Question) -> Judged:
        """One judgement; a question without an answer is repeated when the endpoints are available again."""
        question = replace(question, measures=True)
        for tries_left in reversed(range(1 + _MORE_TRIES)):
            try:
                replies, _ = await poll(self.service, question, self.options.votes)
                found = Judged(tuple(replies))
            except (UnreadableError, RefusedError) as error:
                found = Judged(failure="unreadable", message=str(error))
            except UnavailableError as error:
                found = Judged(failure="unavailable", message=str(error))
            if found.failure != "unavailable":
                self._answered = True
                break
            self._failed += 1
            if not self._answered and self._failed >= _GIVES_UP:
                raise BackendError(f"The judge did not answer once in {self._failed} tries. {found.message}")
            if tries_left:
                await asyncio.sleep(self.options.breaker_reset_s)
        return found

    def _injections(self) -> list[tuple[LabelledAnswer, int]]:
        """Each judged wrong answer with the numbers of its injections, in turn from the shuffled set."""
        known = len(self._shuffled)
        count = min(self.injections_each or known, known)
        judged = {name for (name, _), each in self.answers.items() if each.replies}
        rows = [row for row in self.labels.answers if row.id in judged and not right(row, self.options)]
        rows = rows[: self.injected_most or None]
        return [(row, (place * count + n) % known) for place, row in enumerate(rows) for n in range(count)]

    def _about(self, row: LabelledAnswer, _: int = 0) -> Question:
        """Whether an answer is right; in the mode ``process`` as a trajectory of one turn."""
        scale = (self.options.low, self.options.high)
        if self.options.mode == "process":
            return self.rubric.question(one_turn(row.prompt, row.answer, row.truth), TurnScoresForm(1, *scale))
        form = ScoreForm(*scale)
        return self.rubric.question_of_text(prompt=row.prompt, answer=row.answer, truth=row.truth, form=form)

    def _about_pair(self, row: LabelledPair, swapped: int) -> Question:
        """Which of two answers is better; ``swapped``: the second one stands first."""
        assert self.pair_rubric is not None
        answers = row.answers[::-1] if swapped else row.answers
        candidates = [one_turn(row.prompt, answer, row.truth) for answer in answers]
        return self.pair_rubric.question_of_many(candidates, RankingForm(2))


def right(row: LabelledAnswer, options: JudgeOptions) -> bool:
    """Whether people accept the answer, with the same threshold as for the judge's scores."""
    if isinstance(row.label, bool):
        return row.label
    return (row.label - options.low) / (options.high - options.low) >= options.threshold
