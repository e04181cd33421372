"""The judge as a service: one question in, one reply or several votes out, whatever its server does."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from threading import Lock
from time import perf_counter

from rlfactory_core.cache import cache_root, digest
from rlfactory_core.errors import UsageError, VerifierError
from rlfactory_core.tools import AnswerCache, DiskCache, MemoryCache
from rlfactory_core.types import Message, SamplingParams
from rlfactory_judge.contract import BudgetError, Question, RefusedError, RejectedError, Reply, UnavailableError
from rlfactory_judge.forms import UnreadableError
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.quoting import quotations
from rlfactory_judge.service.endpoint import Endpoint, Timing, request_counts

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
DEFAULT_URL = "http://127.0.0.1:8000/v1"  # of `vllm serve`


class TokenBudget:
    """The run's spent tokens. Questions in progress when the budget runs out are still answered and counted.

    Without ``limit`` nothing is refused; without ``file`` only this process counts.
    """

    def __init__(self, limit: int | None, file: Path | None) -> None:
        self._limit = limit
        self._file = file if limit is not None else None
        self._lock = Lock()
        self._read_to = 0
        self.spent = 0  # as last read

    async def open(self) -> None:
        """Read the tokens spent before. Raises `UsageError` where the file cannot be written."""
        try:
            if self._file is not None:
                await asyncio.to_thread(self._exchange, self._file, 0)
        except OSError as error:
            raise UsageError(
                f"token_budget: the count of spent tokens {self._file} cannot be written ({error.strerror}). "
                "Make the run's folder writable."
            ) from error

    async def is_spent(self) -> bool:
        """Whether the budget is spent, counting all of the run's processes."""
        if self._limit is None:
            return False
        if self.spent < self._limit:
            await self.spend(0)
        return self.spent >= self._limit

    async def spend(self, tokens: int) -> None:
        """Count tokens, even if the caller is cancelled."""
        if self._file is None:
            self.spent += tokens
            return
        try:  # in a thread, because a run's folder may be on a slow network disk
            await asyncio.shield(asyncio.to_thread(self._exchange, self._file, tokens))
        except OSError as error:
            self.spent, self._file = self.spent + tokens, None
            _log.warning("the count of spent tokens cannot be used (%s); this process counts on alone", error)

    def _exchange(self, path: Path, tokens: int) -> None:
        """Append tokens in one short write, which is atomic even if other processes write; then read what is new."""
        with self._lock:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab", buffering=0) as file:
                if tokens:
                    file.write(b"%d\n" % tokens)
            with path.open("rb") as file:
                file.seek(self._read_to)
                lines, end, _ = file.read().rpartition(b"\n")
            self._read_to += len(lines + end)
            self.spent += sum(int(line) for line in lines.split() if line.isdigit())


class JudgeService:
    """Sends questions to the judge's server, between ``await open()`` and ``await close()``. It can be opened again.

    Two judges of a run have different names and separate budgets.
    """

    def __init__(self, options: JudgeOptions, *, name: str = "judge", timing: Timing | None = None) -> None:
        self._options, self.name, self._timing = options, name, timing or Timing()
        usual = _VOTES_TEMPERATURE if options.votes > 1 else 0.0
        self._temperature = usual if options.temperature is None else options.temperature
        self._place = options.url, options.model
        self.model = options.model  # once open, that which answers
        self._cache: AnswerCache | None = None  # of replies
        self.budget = TokenBudget(options.token_budget, None)  # of the run, or of this process
        self._in_flight: dict[str, asyncio.Future[Outcome | None]] = {}  # questions; None: the caller was cancelled
        self._endpoint: Endpoint | None = None
        self._readings: Counter[str] = Counter()  # all, and the clamped ones
        self._has_warned = False

    def describe(self) -> str:
        """The model and where it is, for messages."""
        model = self.model or "the model"
        return f"{model} (not open)" if self._endpoint is None else f"{model} at {self._endpoint.url}"

    def use_endpoint(self, url: str, model: str) -> None:
        """Use this server instead of that in the options. Call it before `open`."""
        self._place = url, model

    async def open(self, folder: Path | None = None) -> None:
        """Find the model and the server's capabilities.

        Args:
            folder: where the run's processes share the token count; None: this process counts for itself.

        Raises:
            BackendError: the server cannot be used; the message says what to start.
            UsageError: the address or the model's id does not fit, or the tokens cannot be counted.
        """
        await self.close()
        options = self._options
        if folder is not None:
            self.budget = TokenBudget(options.token_budget, folder / f"{self.name}-tokens")
        url, model = self._place
        if url is None and options.placement == "pool":
            raise UsageError(
                "placement=pool: the judge's model is served by the engine verl, and this run has another one. Choose "
                "engine=verl, or give judge.url."
            )
        endpoint = Endpoint(url or DEFAULT_URL, model, options, self._timing)
        try:
            await self.budget.open()
            await endpoint.start()
            if options.cache == "disk":
                await endpoint.identify()
        except BaseException:
            await endpoint.close()
            raise
        if options.cache == "disk":
            self._cache = DiskCache(cache_root() / "judge")
        elif options.cache == "memory" and self._cache is None:
            self._cache = MemoryCache()
        self.model, self._endpoint = endpoint.model, endpoint

    async def identify(self) -> str:
        """A key of the model that answers, by which a replaced one differs. Raises `BackendError`: no answer."""
        return self._opened.identity or await self._opened.identify()

    @property
    def _opened(self) -> Endpoint:
        if self._endpoint is None:
            raise RuntimeError("The judge is not open: await open() first.")
        return self._endpoint

    async def ask(self, question: Question, *, sample: int = 0) -> Reply:
        """The reply to one question. ``sample`` numbers independent replies (votes), which are cached separately.

        Equal questions at the same time are asked once, since a group often has equal answers. If the one that is in
        progress is cancelled, the next one that waits for it is asked.

        Raises:
            UnreadableError: the answer cannot be parsed; it is not cached.
            RefusedError: the server does not take the question.
            UnavailableError: the server does not answer.
            BudgetError: the token budget is spent.
        """
        began, options, endpoint = perf_counter(), self._options, self._opened
        params = SamplingParams(options.max_tokens, self._temperature, seed=options.seed + sample)
        key = self._key(question, params, sample)
        while (equal := self._in_flight.get(key)) is not None:
            if (outcome := await asyncio.shield(equal)) is not None:
                return _reply(outcome, began, shared=True)
        own = self._in_flight[key] = asyncio.get_running_loop().create_future()
        outcome = None
        try:
            outcome = await self._find(question, key, params, endpoint)
        finally:
            del self._in_flight[key]
            own.set_result(outcome)
        return _reply(outcome, began, shared=False)

    async def close(self) -> None:
        """Close connections and files; questions in progress raise `UnavailableError`. May be called again."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.close()
        if self._cache is not None and self._options.cache == "disk":  # one in memory is kept for the next opening
            await self._cache.close()
            self._cache = None

    async def _find(self, question: Question, key: str, params: SamplingParams, endpoint: Endpoint) -> Outcome:
        """The reply to a question without an equal running one, or the failure."""
        known = await self._remembered(question, key)
        if known is not None:
            return known
        if await self.budget.is_spent():
            return BudgetError(
                f"The judge's tokens are spent: {self.budget.spent} of token_budget={self._options.token_budget}."
            )
        messages = (*([Message("system", question.system)] if question.system else ()), Message("user", question.user))
        try:
            completion, requests = await endpoint.complete(messages, params, question.form.schema)
        except (RefusedError, UnavailableError) as error:
            return error
        message, tokens = completion.message, (completion.prompt_tokens, completion.sampled_tokens)
        await self.budget.spend(sum(tokens))
        try:
            if completion.finish == "length":  # a truncated number is a different number
                raise UnreadableError(
                    f"The judge's reply was cut off at max_tokens={params.max_tokens}. Give it more, or a rubric that "
                    "asks for less."
                )
            reply = self._read(question, message.content, message.reasoning)
        except UnreadableError as error:
            counts = {**request_counts(requests), "prompt_tokens": tokens[0], "sampled_tokens": tokens[1]}
            return UnreadableError(str(error), counts=counts)
        if self._cache is not None:
            self._cache.put(key, self.name, json.dumps([message.content, message.reasoning]))
        prompt, sampled = tokens
        return replace(reply, prompt_tokens=prompt, sampled_tokens=sampled, attempts=requests, endpoint=endpoint.url)

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
        options, form = self._options, question.form
        settings = json.dumps([options.output, params.temperature, params.max_tokens, options.seed, sample])
        asked = (question.system, question.user, type(form).__qualname__, json.dumps(form.schema, sort_keys=True))
        return digest([_CACHE_FORMAT, self._opened.identity or self._opened.model, *asked, settings])

    async def _remembered(self, question: Question, key: str) -> Reply | None:
        if question.measures or self._cache is None or (known := await self._cache.get(key)) is None:
            return None
        try:
            text, reasoning = map(str, json.loads(known))
            return replace(self._read(question, text, reasoning), cached=True)
        except (UnreadableError, ValueError, TypeError):  # this version cannot read it: ask again
            return None


def _reply(outcome: Outcome, began: float, *, shared: bool) -> Reply:
    """The reply, or raises the failure; what an equal question has ``shared`` costs nothing."""
    if isinstance(outcome, VerifierError):
        raise type(outcome)(str(outcome), counts={} if shared else outcome.counts) from outcome.__cause__
    if shared:
        outcome = replace(outcome, prompt_tokens=0, sampled_tokens=0, attempts=0, cached=True)
    return replace(outcome, seconds=perf_counter() - began)


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
