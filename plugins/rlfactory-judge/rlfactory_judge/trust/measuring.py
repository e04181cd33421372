"""The measurement: the order of the questions, the progress, and the results so far after an interruption."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from rlfactory_core.errors import BackendError
from rlfactory_core.reporting.progress import NullProgress, Progress
from rlfactory_judge.contract import BudgetError, Question, Service
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.injections import Injection
from rlfactory_judge.rubrics.rubric import Rubric
from rlfactory_judge.trust.bias import InjectedAnswer
from rlfactory_judge.trust.judging import (
    Item,
    Judged,
    answer_question,
    each,
    judge,
    pair_question,
)
from rlfactory_judge.trust.labels import LabelledAnswer, LabelledPair, Labels

_GIVES_UP = 8  # failures without any reply, after which the measurement ends
_MORE_TRIES = 3  # further attempts at a question, because a short outage must not lose the other labels


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
        yield from self.answers.values()
        for two in self.pairs.values():
            yield from two
        yield from self.injections
        for several in self.samples.values():
            yield from several


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
            if self._judges_answers:
                await self._stage("judging", "answer", self.labels.answers, self._answer)
            if self._pair_rubric is not None:
                await self._stage("comparing", "pair", self.labels.pairs, self._pair)
            await self._stage("injecting", "answer", self._injections(), self._inject)
            if self.plan.samples and self.plan.sampler is not None and self._judges_answers:
                rows = [(row, number) for row in self.labels.answers for number in range(self.plan.samples)]
                await self._stage("asking again", "sample", rows, self._sample)
        except BudgetError as error:
            self.records.stopped = str(error)

    @property
    def _judges_answers(self) -> bool:
        return self.options.mode in ("outcome", "process")

    @property
    def _pair_rubric(self) -> Rubric | None:
        return self.plan.pair_rubric if self._judges_answers else self.plan.rubric

    async def _stage(
        self, name: str, unit: str, items: Sequence[Item], work: Callable[[Item], Awaitable[None]]
    ) -> None:
        if not items:
            return
        self.progress.stage(name, len(items), unit)

        async def step(item: Item) -> None:
            await work(item)
            self.progress.advance(1, **self._shown)

        await each(items, step, max(1, self.options.concurrency // self.options.votes))

    async def _ask(self, question: Question) -> Judged:
        return await self._with_retries(lambda: judge(self._service, question, self.options.votes))

    async def _with_retries(self, ask: Callable[[], Awaitable[Judged]]) -> Judged:
        """Repeat a failed question when the endpoints are available again."""
        found = self._checked(await ask())
        for _ in range(_MORE_TRIES):
            if found.failure != "unavailable":
                break
            await asyncio.sleep(self.options.breaker_reset_s)
            found = self._checked(await ask())
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
        judged = await self._ask(answer_question(self.plan.rubric, self.options, row))
        self.records.answers[row.id] = judged
        if judged.replies:
            self._show("agreement", judged.accepts(self.options.threshold) == right(row, self.options))

    async def _pair(self, row: LabelledPair) -> None:
        rubric = self._pair_rubric
        assert rubric is not None
        straight = await self._ask(pair_question(rubric, self.options, row, swapped=False))
        swapped = await self._ask(pair_question(rubric, self.options, row, swapped=True))
        self.records.pairs[row.id] = (straight, swapped)

    def _injections(self) -> list[tuple[LabelledAnswer | LabelledPair, Injection, int]]:
        """Each judged wrong or worse answer with its injections, taken in turn from a shuffled set.

        The number is the order in which a pair is shown.
        """
        known = list(self.plan.injections)
        random.Random(self.options.seed).shuffle(known)
        count = min(self.plan.injections_each or len(known), len(known))
        rows: list[LabelledAnswer | LabelledPair] = []
        if self._judges_answers:
            readable = {name for name, judged in self.records.answers.items() if judged.replies}
            rows += [row for row in self.labels.answers if row.id in readable and not right(row, self.options)]
        else:
            seen = {name for name, both in self.records.pairs.items() if all(one.replies for one in both)}
            rows += [row for row in self.labels.pairs if row.id in seen and row.better is not None]
        return [
            (row, known[(place * count + number) % len(known)], number)
            for place, row in enumerate(rows)
            for number in range(count)
        ]

    async def _inject(self, item: tuple[LabelledAnswer | LabelledPair, Injection, int]) -> None:
        row, injection, number = item
        found: InjectedAnswer | None = None
        if isinstance(row, LabelledAnswer):
            text = injection.filled(row.answer)
            judged = await self._ask(answer_question(self.plan.rubric, self.options, row, text))
            if judged.replies:
                accepted = judged.accepts(self.options.threshold)
                found = InjectedAnswer(row.id, injection.name, text, judged.values[0], accepted)
        else:
            assert row.better is not None
            worse = 1 - row.better
            text = injection.filled(row.answers[worse])
            answers = (text, row.answers[1]) if worse == 0 else (row.answers[0], text)
            swapped = number % 2 == 1
            judged = await self._ask(
                pair_question(self.plan.rubric, self.options, replace(row, answers=answers), swapped=swapped)
            )
            if judged.replies:
                values = judged.values[::-1] if swapped else judged.values
                found = InjectedAnswer(row.id, injection.name, text, values[worse], values[worse] > values[1 - worse])
        self.records.injections.append(judged)
        if found is not None:
            self.records.injected.append(found)
            self._show("injected_accepted", found.accepted)

    async def _sample(self, item: tuple[LabelledAnswer, int]) -> None:
        row, number = item
        sampler = self.plan.sampler
        assert sampler is not None
        question = answer_question(self.plan.rubric, self.options, row)
        self.records.samples[row.id].append(await self._with_retries(lambda: judge(sampler, question, 1, first=number)))


def label_value(row: LabelledAnswer, options: JudgeOptions) -> float:
    """The label on [0, 1], as scores are."""
    if isinstance(row.label, bool):
        return float(row.label)
    return (row.label - options.low) / (options.high - options.low)


def right(row: LabelledAnswer, options: JudgeOptions) -> bool:
    """Whether people accept the answer, with the same threshold as for the judge's scores."""
    return row.label if isinstance(row.label, bool) else label_value(row, options) >= options.threshold
