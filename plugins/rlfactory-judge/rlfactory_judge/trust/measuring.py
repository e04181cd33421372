"""The measurement: the questions about labelled answers and pairs as in a run, and the judgements so far."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import fmean
from typing import TypeVar

from rlfactory_core.errors import BackendError, DataError
from rlfactory_core.reporting.progress import NullProgress, Progress
from rlfactory_core.utils.aio import gather_all
from rlfactory_judge.contract import BudgetError, Question, RefusedError, Reply, UnavailableError, UnreadableError
from rlfactory_judge.forms.kinds import PreferenceForm, RankingForm, ScoreForm, TurnScoresForm
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.injections import Injection
from rlfactory_judge.rubrics.rubric import Rubric, one_turn
from rlfactory_judge.service.service import JudgeService, majority, medians, poll
from rlfactory_judge.trust.labels import LabelledAnswer, LabelledPair, Labels

Item = TypeVar("Item")

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


@dataclass
class Measurement:
    """One measurement of a judge; its judgements may be read at any time, also after `run` was cancelled.

    Raises:
        DataError: the labels have no rows for the options' mode.
    """

    service: JudgeService
    options: JudgeOptions
    labels: Labels
    rubric: Rubric
    pair_rubric: Rubric | None = None  # for pairs if the options' mode judges single answers; None: they are left out
    temperature: float = 0.0  # for self-consistency, above 0
    samples: int = 0  # replies to each question for self-consistency; 0: not measured
    injections: Sequence[Injection] = ()  # put into each wrong answer
    injections_each: int = 0  # how many of them are tried in each answer, different ones in each; 0: all
    judge: str = ""  # its model and endpoints, for people
    progress: Progress = field(default_factory=NullProgress)

    answers: dict[str, Judged] = field(default_factory=dict, init=False)  # by the label's id
    pairs: dict[str, tuple[Judged, Judged]] = field(default_factory=dict, init=False)  # as in the file, and swapped
    # Whether each judged injection was accepted.
    injected: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list), init=False)
    injection_judgements: list[Judged] = field(default_factory=list, init=False)  # also without a reply
    again: dict[str, list[Judged]] = field(default_factory=lambda: defaultdict(list), init=False)
    stopped: str = field(default="", init=False)  # why there are fewer than planned

    def __post_init__(self) -> None:
        answers, pairs, mode = self.labels.answers, self.labels.pairs, self.options.mode
        if not self.options.judges_single:
            self.pair_rubric = self.rubric
            if not pairs:
                raise DataError(
                    f"The labels have {len(answers)} answers and no pairs, which mode={mode} compares. "
                    'Add rows with "answers" and "better", or measure mode=outcome.'
                )
        elif not answers:
            raise DataError(
                f"The labels have {len(pairs)} pairs and no single answers, which mode={mode} judges. "
                'Add rows with "answer" and "label", or measure mode=pairwise.'
            )
        self._failed = 0
        self._answered = False
        self._shown: defaultdict[str, list[bool]] = defaultdict(list)  # for the running means of the progress

    @property
    def judgements(self) -> list[Judged]:
        """All so far, those for self-consistency last."""
        return [*chain(self.answers.values(), *self.pairs.values(), self.injection_judgements, *self.again.values())]

    async def run(self) -> None:
        """Measure the agreement first, then the rest. Raises `BackendError` if the judge does not answer at all."""
        answers = self.labels.answers if self.options.judges_single else ()
        try:
            await self._stage("judging", "answer", answers, self._answer)
            if self.pair_rubric is not None:
                await self._stage("comparing", "pair", self.labels.pairs, self._pair)
            await self._stage("injecting", "answer", self._injections(), self._inject)
            again = [(row, number) for row in answers for number in range(self.samples)]
            await self._stage("asking again", "sample", again, self._sample)
        except BudgetError as error:
            self.stopped = str(error)

    async def _stage(
        self, name: str, unit: str, items: Sequence[Item], work: Callable[[Item], Awaitable[None]]
    ) -> None:
        """Work on all items, as many at a time as may be asked about; the first error cancels the rest."""
        if not items:
            return
        self.progress.stage(name, len(items), unit)
        left = iter(items)

        async def worker() -> None:
            for item in left:
                await work(item)
                self.progress.advance(1, **{name: fmean(each) for name, each in self._shown.items()})

        at_once = max(1, self.options.concurrency // self.options.votes)
        await gather_all(worker() for _ in range(at_once))

    async def _ask(self, question: Question, votes: int | None = None, first: int = 0) -> Judged:
        """One judgement; a question without an answer is repeated when the endpoints are available again."""
        question = replace(question, measures=True)
        for tries_left in reversed(range(1 + _MORE_TRIES)):
            try:
                replies, _ = await poll(self.service, question, votes or self.options.votes, first=first)
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

    async def _answer(self, row: LabelledAnswer) -> None:
        judged = self.answers[row.id] = await self._ask(self._about(row))
        if judged.replies:
            self._shown["agreement"].append(judged.accepts(self.options.threshold) == right(row, self.options))

    async def _pair(self, row: LabelledPair) -> None:
        straight = await self._ask(self._about_pair(row, swapped=False))
        self.pairs[row.id] = (straight, await self._ask(self._about_pair(row, swapped=True)))

    async def _sample(self, item: tuple[LabelledAnswer, int]) -> None:
        row, number = item
        question = replace(self._about(row), temperature=self.temperature)
        self.again[row.id].append(await self._ask(question, 1, number))

    def _injections(self) -> list[tuple[LabelledAnswer, Injection]]:
        """Each judged wrong answer with its injections, in turn from a shuffled set."""
        known = list(self.injections)
        random.Random(self.options.seed).shuffle(known)
        count = min(self.injections_each or len(known), len(known))
        judged = {name for name, each in self.answers.items() if each.replies}
        rows = [row for row in self.labels.answers if row.id in judged and not right(row, self.options)]
        return [
            (row, known[(place * count + number) % len(known)])
            for place, row in enumerate(rows)
            for number in range(count)
        ]

    async def _inject(self, item: tuple[LabelledAnswer, Injection]) -> None:
        row, injection = item
        judged = await self._ask(self._about(replace(row, answer=injection.filled(row.answer))))
        self.injection_judgements.append(judged)
        if judged.replies:
            self.injected[row.id].append(judged.accepts(self.options.threshold))
            self._shown["injected_accepted"].append(self.injected[row.id][-1])

    def _about(self, row: LabelledAnswer) -> Question:
        """Whether an answer is right; in the mode ``process`` as a trajectory of one turn."""
        scale = (self.options.low, self.options.high)
        if self.options.mode == "process":
            return self.rubric.question(one_turn(row.prompt, row.answer, row.truth), TurnScoresForm(1, *scale))
        form = ScoreForm(*scale)
        return self.rubric.question_of_text(prompt=row.prompt, answer=row.answer, truth=row.truth, form=form)

    def _about_pair(self, row: LabelledPair, *, swapped: bool) -> Question:
        """Which of two answers is better; ``swapped``: the second one stands first."""
        assert self.pair_rubric is not None
        answers = row.answers[::-1] if swapped else row.answers
        candidates = [one_turn(row.prompt, answer, row.truth) for answer in answers]
        form = RankingForm(2) if self.options.mode == "ranking" else PreferenceForm()
        return self.pair_rubric.question_of_many(candidates, form)


def label_value(row: LabelledAnswer, options: JudgeOptions) -> float:
    """The label on [0, 1], as scores are."""
    return float(row.label) if isinstance(row.label, bool) else (row.label - options.low) / (options.high - options.low)


def right(row: LabelledAnswer, options: JudgeOptions) -> bool:
    """Whether people accept the answer, with the same threshold as for the judge's scores."""
    return row.label if isinstance(row.label, bool) else label_value(row, options) >= options.threshold
