"""The measurement: the questions about labelled answers and pairs as in a run, and the judgements so far."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rlfactory_core.errors import BackendError
from rlfactory_core.reporting.progress import NullProgress, Progress
from rlfactory_core.types import Message, Sample, StopReason, Trajectory, Turn
from rlfactory_judge.contract import (
    BudgetError,
    Question,
    RefusedError,
    Reply,
    Service,
    UnavailableError,
    UnreadableError,
)
from rlfactory_judge.forms.preference import PreferenceForm
from rlfactory_judge.forms.ranking import RankingForm
from rlfactory_judge.forms.score import ScoreForm
from rlfactory_judge.forms.turns import TurnScoresForm
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.injections import Injection
from rlfactory_judge.rubrics.rubric import Rubric
from rlfactory_judge.service.polling import majority, medians, poll
from rlfactory_judge.trust.bias import InjectedAnswer
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


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure besides agreement.

    Args:
        rubric: of the options' mode.
        pair_rubric: of the mode ``pairwise``, for pairs where the options' mode judges single answers; None: pairs are
            left out.
        sampler: the same judge at a temperature above 0, for self-consistency.
        temperature: the sampler's.
        samples: replies to each question for self-consistency; 0: not measured.
        injections: put into each wrong answer.
        injections_each: how many of them are tried in each answer, different ones in each; 0: all.
    """

    rubric: Rubric
    pair_rubric: Rubric | None = None
    sampler: Service | None = None
    temperature: float = 0.0
    samples: int = 0
    injections: Sequence[Injection] = ()
    injections_each: int = 0


@dataclass(slots=True)
class Records:
    """All judgements so far; grows while a `Measurement` runs."""

    answers: dict[str, Judged] = field(default_factory=dict)  # by the label's id
    pairs: dict[str, tuple[Judged, Judged]] = field(default_factory=dict)  # in the file's order, and swapped
    injected: list[InjectedAnswer] = field(default_factory=list)  # those that were judged
    injections: list[Judged] = field(default_factory=list)  # also without a reply
    samples: defaultdict[str, list[Judged]] = field(default_factory=lambda: defaultdict(list))
    stopped: str = ""  # why there are fewer than planned

    def all(self) -> Iterator[Judged]:
        """All judgements, those for self-consistency last."""
        groups: list[Iterable[Judged]] = [self.answers.values(), *self.pairs.values(), self.injections]
        for group in (*groups, *self.samples.values()):
            yield from group


class Measurement:
    """One measurement of a judge; `records` may be read at any time, also after `run` was cancelled."""

    def __init__(
        self, service: Service, options: JudgeOptions, labels: Labels, plan: Plan, progress: Progress | None = None
    ) -> None:
        self.records = Records()
        self.options, self.labels, self.plan = options, labels, plan
        self.judge = ""  # its model and endpoints, for people
        self._service = service
        self.progress: Progress = progress or NullProgress()
        self._failed = 0
        self._answered = False
        self._shown: dict[str, float] = {}  # running means, for the progress
        self._counted: Counter[str] = Counter()

    async def run(self) -> None:
        """Measure the agreement first, then the rest of the plan.

        Raises:
            BackendError: the judge does not answer at all.
        """
        try:
            if self.options.judges_single:
                await self._stage("judging", "answer", self.labels.answers, self._answer)
            if self._pair_rubric is not None:
                await self._stage("comparing", "pair", self.labels.pairs, self._pair)
            await self._stage("injecting", "answer", self._injections(), self._inject)
            if self.plan.samples and self.plan.sampler is not None and self.options.judges_single:
                rows = [(row, number) for row in self.labels.answers for number in range(self.plan.samples)]
                await self._stage("asking again", "sample", rows, self._sample)
        except BudgetError as error:
            self.records.stopped = str(error)

    @property
    def _pair_rubric(self) -> Rubric | None:
        return self.plan.pair_rubric if self.options.judges_single else self.plan.rubric

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
                self.progress.advance(1, **self._shown)

        workers = [
            asyncio.ensure_future(worker()) for _ in range(max(1, self.options.concurrency // self.options.votes))
        ]
        try:
            await asyncio.gather(*workers)
        finally:
            for one in workers:
                one.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _ask(self, question: Question) -> Judged:
        return await self._judged(self._service, question, self.options.votes)

    async def _judged(self, service: Service, question: Question, votes: int, first: int = 0) -> Judged:
        """One judgement; a failed question is repeated when the endpoints are available again."""
        found = self._checked(await _judge(service, question, votes, first))
        for _ in range(_MORE_TRIES):
            if found.failure != "unavailable":
                break
            await asyncio.sleep(self.options.breaker_reset_s)
            found = self._checked(await _judge(service, question, votes, first))
        return found

    def _checked(self, found: Judged) -> Judged:
        self._answered = self._answered or found.failure != "unavailable"
        self._failed += found.failure == "unavailable"
        if not self._answered and self._failed >= _GIVES_UP:
            raise BackendError(f"The judge did not answer once in {self._failed} tries. {found.message}")
        return found

    def _show(self, name: str, value: bool) -> None:
        """A running mean."""
        self._counted[name] += 1
        mean = self._shown.get(name, 0.0)
        self._shown[name] = mean + (value - mean) / self._counted[name]

    async def _answer(self, row: LabelledAnswer) -> None:
        judged = await self._ask(self._about(row))
        self.records.answers[row.id] = judged
        if judged.replies:
            self._show("agreement", judged.accepts(self.options.threshold) == right(row, self.options))

    async def _pair(self, row: LabelledPair) -> None:
        straight = await self._ask(self._about_pair(row, swapped=False))
        self.records.pairs[row.id] = (straight, await self._ask(self._about_pair(row, swapped=True)))

    async def _sample(self, item: tuple[LabelledAnswer, int]) -> None:
        row, number = item
        assert self.plan.sampler is not None
        self.records.samples[row.id].append(await self._judged(self.plan.sampler, self._about(row), 1, number))

    def _injections(self) -> list[tuple[LabelledAnswer | LabelledPair, Injection, int]]:
        """Each judged wrong or worse answer with its injections, taken in turn from a shuffled set.

        The number is the order in which a pair is shown.
        """
        known = list(self.plan.injections)
        random.Random(self.options.seed).shuffle(known)
        count = min(self.plan.injections_each or len(known), len(known))
        answers, pairs = self.records.answers, self.records.pairs
        rows: list[LabelledAnswer | LabelledPair] = []
        if self.options.judges_single:
            readable = [row for row in self.labels.answers if row.id in answers and answers[row.id].replies]
            rows += [row for row in readable if not right(row, self.options)]
        else:
            seen = [row for row in self.labels.pairs if all(one.replies for one in pairs.get(row.id, (Judged(),)))]
            rows += [row for row in seen if row.better is not None]
        return [
            (row, known[(place * count + number) % len(known)], number)
            for place, row in enumerate(rows)
            for number in range(count)
        ]

    async def _inject(self, item: tuple[LabelledAnswer | LabelledPair, Injection, int]) -> None:
        row, injection, number = item
        if isinstance(row, LabelledAnswer):
            text = injection.filled(row.answer)
            judged = await self._ask(self._about(replace(row, answer=text)))
        else:
            assert row.better is not None
            worse, swapped = 1 - row.better, number % 2 == 1
            text = injection.filled(row.answers[worse])
            answers = (text, row.answers[1]) if worse == 0 else (row.answers[0], text)
            judged = await self._ask(self._about_pair(replace(row, answers=answers), swapped=swapped))
        self.records.injections.append(judged)
        if not judged.replies:
            return
        if isinstance(row, LabelledAnswer):
            score, accepted = judged.values[0], judged.accepts(self.options.threshold)
        else:
            values = judged.values[::-1] if swapped else judged.values
            score, accepted = values[worse], values[worse] > values[1 - worse]
        self.records.injected.append(InjectedAnswer(row.id, injection.name, text, score, accepted))
        self._show("injected_accepted", accepted)

    def _about(self, row: LabelledAnswer) -> Question:
        """Whether an answer is right; in the mode ``process`` as a trajectory of one turn."""
        rubric, low, high = self.plan.rubric, self.options.low, self.options.high
        if self.options.mode == "process":
            return rubric.question(_trajectory(row, row.answer), TurnScoresForm(1, low, high))
        return rubric.question_of_text(prompt=row.prompt, answer=row.answer, truth=row.truth, form=ScoreForm(low, high))

    def _about_pair(self, row: LabelledPair, *, swapped: bool) -> Question:
        """Which of two answers is better; ``swapped``: the second one stands first."""
        rubric = self._pair_rubric
        assert rubric is not None
        answers = row.answers[::-1] if swapped else row.answers
        candidates = [_trajectory(row, answer, place) for place, answer in enumerate(answers)]
        form = RankingForm(2) if self.options.mode == "ranking" else PreferenceForm()
        return rubric.question_of_many(candidates, form)


async def _judge(service: Service, question: Question, votes: int, first: int) -> Judged:
    """One judgement as in a run. A spent budget is raised."""
    try:
        return Judged((await poll(service, question, votes, first=first)).replies)
    except (UnreadableError, RefusedError) as error:
        return Judged(failure="unreadable", message=str(error))
    except UnavailableError as error:
        return Judged(failure="unavailable", message=str(error))


def _trajectory(row: LabelledAnswer | LabelledPair, answer: str, attempt: int = 0) -> Trajectory:
    """A trajectory of a single turn with the answer."""
    turn = Turn((), (), (), Message("assistant", answer))
    return Trajectory(Sample("label", row.prompt, row.truth or None), attempt, (turn,), StopReason.FINAL_ANSWER)


def label_value(row: LabelledAnswer, options: JudgeOptions) -> float:
    """The label on [0, 1], as scores are."""
    return float(row.label) if isinstance(row.label, bool) else (row.label - options.low) / (options.high - options.low)


def right(row: LabelledAnswer, options: JudgeOptions) -> bool:
    """Whether people accept the answer, with the same threshold as for the judge's scores."""
    return row.label if isinstance(row.label, bool) else label_value(row, options) >= options.threshold
