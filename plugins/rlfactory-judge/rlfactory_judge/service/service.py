"""The judge as a service: one question in, one reply or several votes out, whatever its servers do."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from rlfactory_core.cache import cache_root, digest
from rlfactory_core.errors import UsageError, VerifierError
from rlfactory_core.tools import AnswerCache, DiskCache, MemoryCache
from rlfactory_core.types import Message, SamplingParams
from rlfactory_judge.contract import (
    BudgetError,
    Question,
    RefusedError,
    RejectedError,
    Reply,
    UnavailableError,
    UnreadableError,
)
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.quoting import quotations
from rlfactory_judge.service.budget import TokenBudget
from rlfactory_judge.service.endpoint import Timing
from rlfactory_judge.service.requests import Endpoints, request_counts

_log = logging.getLogger(__name__)

Outcome = Reply | VerifierError
_NAMES: dict[type[VerifierError], str] = {  # of the counts, the most serious failure first
    BudgetError: "over_budget",
    UnavailableError: "unavailable",
    RefusedError: "refused",
    UnreadableError: "unreadable",
    VerifierError: "failed",
}
_CACHE_FORMAT = "2"  # of the cached replies' keys and contents
_VOTES_TEMPERATURE = 0.7
DEFAULT_URL = "http://127.0.0.1:8000/v1"  # of `rlfactory judge serve`


@dataclass(slots=True)
class _InFlight:
    task: asyncio.Task[Outcome]
    waiting: int = 0
    claimed: bool = False


class InFlightRequests:
    """Running requests by key, since a group often has equal answers. One goes on while a caller waits for it."""

    def __init__(self) -> None:
        self._by_key: dict[str, _InFlight] = {}
        self._tasks: set[asyncio.Task[Outcome]] = set()  # also those that are being cancelled

    async def join(self, key: str, start: Callable[[], Coroutine[Any, Any, Outcome]]) -> tuple[Outcome, bool]:
        """The result of ``start()`` or of an equal running request, and whether another caller has it too.

        Exactly one caller gets False, so that the cost is counted once. Raises `UnavailableError` after `close`.
        """
        request = self._by_key.get(key)
        if request is None:
            request = self._by_key[key] = _InFlight(asyncio.ensure_future(start()))
            self._tasks.add(request.task)
            request.task.add_done_callback(self._tasks.discard)
        request.waiting += 1
        try:
            result = await asyncio.shield(request.task)
        except asyncio.CancelledError:
            if request.task.cancelled():  # by `close`; otherwise the caller was cancelled
                raise UnavailableError("The judge was closed before it answered.") from None
            raise
        finally:
            request.waiting -= 1
            if request.task.done() or not request.waiting:
                request.task.cancel()
                if self._by_key.get(key) is request:
                    del self._by_key[key]
        shared, request.claimed = request.claimed, True
        return result, shared

    async def close(self) -> None:
        """Cancel all running requests."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class JudgeService:
    """Sends questions to the judge's endpoints, between ``await open()`` and ``await close()``. It can be opened again.

    Two judges of a run have different names and separate budgets.
    """

    def __init__(self, options: JudgeOptions, *, name: str = "judge", timing: Timing | None = None) -> None:
        self._options, self.name, self._timing = options, name, timing or Timing()
        usual = _VOTES_TEMPERATURE if options.votes > 1 else 0.0
        self._temperature = usual if options.temperature is None else options.temperature
        self._given: tuple[tuple[str, ...], str] | None = None
        self.model = options.model
        self._cache: AnswerCache | None = None  # of replies
        self.budget = TokenBudget(options.token_budget, None)  # of the run, or of this process
        self._in_flight = InFlightRequests()
        self._endpoints: Endpoints | None = None
        self._is_open = False
        self._readings: Counter[str] = Counter()  # all, and the clamped ones
        self._has_warned = False

    def describe(self) -> str:
        """The model and where it is, for messages."""
        model = self.model or "the model"
        return f"{model} (not open)" if self._endpoints is None else f"{model} at {self._endpoints.describe()}"

    def use_endpoints(self, urls: Sequence[str], model: str) -> None:
        """Use these endpoints instead of those in the options. Call it before `open`."""
        self._given = (tuple(urls), model)

    async def open(self, folder: Path | None = None, say: Callable[[str], None] | None = None) -> None:
        """Find the endpoints, the model and the servers' capabilities.

        Args:
            folder: where the run's processes share the token count; None: this process counts for itself.
            say: shows warnings about endpoints that do not answer while others do.

        Raises:
            BackendError: no endpoint can be used; the message says what to start.
            UsageError: an address or the model's id does not fit, or the tokens cannot be counted.
        """
        await self.close()
        urls, model = self._given or _addresses(self._options)
        if folder is not None:
            self.budget = TokenBudget(self._options.token_budget, folder / f"{self.name}-tokens")
        self._endpoints = Endpoints(urls, model, self._options, self._timing)
        try:
            await self.budget.open()
            self.model = await self._endpoints.start(say or (lambda _: None))
            if self._options.cache == "disk":
                await self.identify()
        except BaseException:
            await self.close()
            raise
        if self._options.cache == "disk":
            self._cache = DiskCache(cache_root() / "judge")
        elif self._options.cache == "memory" and self._cache is None:
            self._cache = MemoryCache()
        self._is_open = True

    async def identify(self) -> str:
        """A key of the model that answers, by which a replaced one differs. Raises `BackendError`: no answer."""
        assert self._endpoints is not None
        return await self._endpoints.identify()

    async def ask(self, question: Question, *, sample: int = 0) -> Reply:
        """The reply to one question. ``sample`` numbers independent replies (votes), which are cached separately.

        Raises:
            UnreadableError: the answer cannot be parsed; it is not cached.
            RefusedError: no endpoint takes the question.
            UnavailableError: no endpoint answers.
            BudgetError: the token budget is spent.
        """
        if not self._is_open:
            raise RuntimeError("The judge is not open: await open() first.")
        began, options = perf_counter(), self._options
        params = SamplingParams(options.max_tokens, self._temperature, seed=options.seed + sample)
        key = self._key(question, params, sample)
        outcome, shared = await self._in_flight.join(key, lambda: self._find(question, key, params))
        if isinstance(outcome, VerifierError):
            raise type(outcome)(str(outcome), counts={} if shared else outcome.counts) from outcome.__cause__
        if shared:
            outcome = replace(outcome, prompt_tokens=0, sampled_tokens=0, attempts=0, cached=True)
        return replace(outcome, seconds=perf_counter() - began)

    async def close(self) -> None:
        """Close connections and files, and cancel running questions. May be called again."""
        self._is_open = False
        await self._in_flight.close()
        endpoints, self._endpoints = self._endpoints, None
        if endpoints is not None:
            await endpoints.close()
        if self._cache is not None and self._options.cache == "disk":  # one in memory is kept for the next opening
            await self._cache.close()
            self._cache = None

    async def _find(self, question: Question, key: str, params: SamplingParams) -> Outcome:
        """The reply to a question without an equal running one, or the failure."""
        known = await self._remembered(question, key)
        if known is not None:
            return known
        if await self.budget.is_spent():
            return BudgetError(
                f"The judge's tokens are spent: {self.budget.spent} of token_budget={self._options.token_budget}."
            )
        assert self._endpoints is not None
        messages = (*([Message("system", question.system)] if question.system else ()), Message("user", question.user))
        try:
            completion, endpoint, requests = await self._endpoints.complete(messages, params, question.form.schema)
        except (RefusedError, UnavailableError) as error:
            return error
        said, tokens = completion.message, (completion.prompt_tokens, completion.sampled_tokens)
        await self.budget.spend(sum(tokens))
        try:
            if completion.finish == "length":  # a truncated number is a different number
                raise UnreadableError(
                    f"The judge's reply was cut off at max_tokens={params.max_tokens}. Give it more, or a rubric that "
                    "asks for less."
                )
            reply = self._read(question, said.content, said.reasoning)
        except UnreadableError as error:
            counts = {**request_counts(requests), "prompt_tokens": tokens[0], "sampled_tokens": tokens[1]}
            return UnreadableError(str(error), counts=counts)
        if self._cache is not None:
            self._cache.put(key, self.name, json.dumps([said.content, said.reasoning]))
        prompt, sampled = tokens
        return replace(reply, prompt_tokens=prompt, sampled_tokens=sampled, attempts=requests, endpoint=endpoint)

    def _read(self, question: Question, text: str, reasoning: str) -> Reply:
        """Raises `UnreadableError`; warns once if many scores are outside the scale."""
        form = question.form
        verdict = form.verdict(text, quotations(question.user))
        clamped = form.is_beyond(verdict)
        self._readings.update(all=1, clamped=clamped)
        if clamped and not self._has_warned and self._readings["clamped"] >= max(5, self._readings["all"] / 5):
            self._has_warned = True
            _log.warning(
                "%s: %d of %d scores were outside the scale, such as %s; expected %s. They are clamped, so that "
                "different answers get the same reward. Set low and high to the scale of the rubric, or output=json.",
                self.name, self._readings["clamped"], self._readings["all"], verdict, form.wanted,
            )  # fmt: skip
        return Reply(form.values(verdict), text, reasoning, clamped=clamped)

    def _key(self, question: Question, params: SamplingParams, sample: int) -> str:
        """The key of everything that determines the judge's reply."""
        assert self._endpoints is not None
        options, form = self._options, question.form
        settings = json.dumps([options.output, params.temperature, params.max_tokens, options.seed, sample])
        asked = (question.system, question.user, type(form).__qualname__, json.dumps(form.schema, sort_keys=True))
        return digest([_CACHE_FORMAT, self._endpoints.identity or self.model or "", *asked, settings])

    async def _remembered(self, question: Question, key: str) -> Reply | None:
        if question.measures or self._cache is None or (known := await self._cache.get(key)) is None:
            return None
        try:
            text, reasoning = map(str, json.loads(known))
            return replace(self._read(question, text, reasoning), cached=True)
        except (UnreadableError, ValueError, TypeError):  # this version cannot read it: ask again
            return None


def _addresses(options: JudgeOptions) -> tuple[tuple[str, ...], str | None]:
    """The endpoints and the model's id, None for the only one; raises `UsageError` for a list without any."""
    if options.url is not None:
        if not options.urls:
            raise UsageError("judge.url is empty. Give one address or several, such as http://127.0.0.1:8000/v1.")
        return options.urls, options.model
    if options.placement == "pool":
        raise UsageError(
            "placement=pool: the judge's model is served by the engine verl, and this run has another one. Choose "
            "engine=verl, or give judge.url."
        )
    return (DEFAULT_URL,), options.model


def medians(votes: Sequence[Reply]) -> tuple[float, ...]:
    """The median at each place of the replies' values."""
    return tuple(median(column) for column in zip(*(vote.values for vote in votes), strict=True))


def majority(votes: Sequence[Reply], threshold: float) -> bool:
    """Whether more than half of the replies' first values reach the threshold."""
    return 2 * sum(vote.values[0] >= threshold for vote in votes) > len(votes)


async def poll(service: JudgeService, question: Question, votes: int) -> tuple[list[Reply], dict[str, float]]:
    """The successful votes on a question, always more than half, and the cost of all (see `cost`).

    Raises:
        VerifierError: no majority of the votes succeeded; see `worst_failure`.
    """
    outcomes = await ask_all(service, [(question, number) for number in range(votes)])
    replies = [each for each in outcomes if isinstance(each, Reply)]
    if 2 * len(replies) > votes:
        return replies, cost(outcomes)
    raise worst_failure(outcomes)


async def ask_all(service: JudgeService, asked: Iterable[tuple[Question, int]]) -> list[Reply | VerifierError]:
    """The replies to questions with their vote numbers, asked concurrently; failures take the place of replies.

    A failure does not cancel the others: their tokens are spent, and the next run finds their replies in the cache.
    """
    requests = (service.ask(question, sample=number) for question, number in asked)
    outcomes = []
    for outcome in await asyncio.gather(*requests, return_exceptions=True):
        if not isinstance(outcome, (Reply, VerifierError)):
            raise outcome
        outcomes.append(outcome)
    return outcomes


def worst_failure(outcomes: Sequence[Reply | VerifierError]) -> VerifierError:
    """The most serious failure among some outcomes, in the order of `_NAMES`, with the counts of all outcomes."""
    failures = [each for each in outcomes if not isinstance(each, Reply)]
    kind, first = next((kind, one) for kind in _NAMES for one in failures if isinstance(one, kind))
    if kind is RefusedError and all(isinstance(one, RejectedError) for one in failures if isinstance(one, kind)):
        kind = RejectedError
    text = str(first) if len(outcomes) == 1 else f"{len(failures)} of {len(outcomes)} replies failed: {first}"
    return kind(text, counts=cost(outcomes))


def cost(outcomes: Iterable[Reply | VerifierError]) -> dict[str, float]:
    """The total cost of replies and failures for `Score.counts`; counts of zero are left out.

    ``replies``, of these ``cached`` ones (from an equal question) and ``clamped`` ones; ``requests``, of these
    ``retries``; ``prompt_tokens``, ``sampled_tokens``; and the failures by the names in `_NAMES`.
    """
    counts: Counter[str] = Counter()
    for each in outcomes:
        if isinstance(each, Reply):
            counts.update(replies=1, cached=each.cached, clamped=each.clamped, **request_counts(each.attempts))
            counts.update(prompt_tokens=each.prompt_tokens, sampled_tokens=each.sampled_tokens)
        else:
            counts[next(name for kind, name in _NAMES.items() if isinstance(each, kind))] += 1
            counts.update(each.counts)
    return {name: float(count) for name, count in counts.items() if count}
