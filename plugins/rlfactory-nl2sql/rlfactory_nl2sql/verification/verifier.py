"""The verdict on a predicted query: does it give the gold query's answer?

One database is not enough: a wrong query often has the right result by accident, and a constant always has. So both
queries run on several instances: the given database, and varied ones of the same schema. The gold query's answers are
computed once and kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from rlfactory_core.errors import BackendError, VerifierError
from rlfactory_core.types import Verdict
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.verification.connections import Content, Recent, content
from rlfactory_nl2sql.verification.gold import GoldFound, GoldJob, VerifyOptions
from rlfactory_nl2sql.verification.judging import PredictionJob, failed
from rlfactory_nl2sql.verification.pool import WorkerPool

_KEPT = 10_000  # gold queries, and verdicts
_BY_CHANCE = (Failure.DEADLINE.value, Failure.MEMORY.value)  # they may depend on what else the machine does

Key = tuple[DatabaseRef, Content, str]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Once(Generic[K, V]):
    """Finds each value once for all who ask, and keeps those used last if ``lasts`` says so."""

    def __init__(self, lasts: Callable[[V], bool] = lambda _: True) -> None:
        self._lasts = lasts
        self._found: Recent[K, asyncio.Future[V]] = Recent(_KEPT)

    async def get(self, key: K, find: Callable[[], Awaitable[V]]) -> V:
        """The value of a key; raises what ``find`` raises. One caller who gives up does not stop it for the others."""
        return await asyncio.shield(self._found.use(key, lambda: self._begun(key, find)))

    def _begun(self, key: K, find: Callable[[], Awaitable[V]]) -> asyncio.Future[V]:
        search = asyncio.ensure_future(find())
        search.add_done_callback(partial(self._ended, key))
        return search

    def _ended(self, key: K, search: asyncio.Future[V]) -> None:
        if search.cancelled() or search.exception() is not None or not self._lasts(search.result()):
            self._found.pop(key, None)


class SqlVerifier:
    """Judges predictions in the pool's workers, any number at once. The caller closes the pool."""

    def __init__(self, pool: WorkerPool, options: VerifyOptions | None = None) -> None:
        self._pool = pool
        self._options = options or VerifyOptions()
        self._golds: Once[Key, GoldFound | QueryError] = Once()
        self._verdicts: Once[tuple[Key, str], Verdict] = Once(_lasts)  # a group's predictions are often the same

    async def verify(self, ref: DatabaseRef, gold: str, prediction: str) -> Verdict:
        """Whether ``prediction`` has the results of ``gold``, with reasons for a person who debugs a reward.

        ``passed`` is None if that is unknown: the gold query fails, the database does not answer, or no varied database
        gives evidence and the queries differ in more than layout and letter case. ``data`` holds what is known of:
        ``semantics``; ``instances``, the number on which the results were compared; ``gold_seconds`` and
        ``prediction_seconds``, the database's time; ``failure``, the `Failure` of the prediction; ``expected`` and
        ``got``.

        Raises:
            UsageError: the database's file is missing, or its package is not installed.
        """
        data: dict[str, Any] = {"semantics": self._options.comparison.semantics, "instances": 0}
        try:
            key = (ref, content(ref), gold)
            answers = await self._gold(key)
            if isinstance(answers, QueryError):
                return Verdict(None, (f"the gold query fails: {answers}",), data)
            data["gold_seconds"] = round(answers.taken, 6)
            if _bare(prediction) == _bare(gold):
                return Verdict(passed=True, reasons=answers.notes, data=data)
            found = await self._verdicts.get((key, prediction), lambda: self._judge(ref, gold, prediction))
        except (BackendError, VerifierError) as error:
            return Verdict(None, (str(error),), data)
        return Verdict(found.passed, (*found.reasons, *answers.notes), {**data, **found.data})

    async def has_evidence(self, ref: DatabaseRef, gold: str) -> bool:
        """Whether predictions can be verified against a gold query; False if it fails, or the database does not answer.

        Raises:
            UsageError: as `verify`.
        """
        try:
            answers = await self._gold((ref, content(ref), gold))
        except (BackendError, VerifierError):
            return False
        return isinstance(answers, GoldFound) and answers.evidence

    async def _judge(self, ref: DatabaseRef, gold: str, prediction: str) -> Verdict:
        job = PredictionJob(GoldJob(ref, gold, self._options), prediction)
        try:
            return read_verdict(await self._pool.run(job, key=gold))
        except QueryError as error:  # it ended its process, or was ended with it
            return failed("", error, job.seconds, 0)

    async def _gold(self, key: Key) -> GoldFound | QueryError:
        """What is known of the gold query, or its error."""
        return await self._golds.get(key, lambda: self._find(key))

    async def _find(self, key: Key) -> GoldFound | QueryError:
        ref, _, gold = key
        try:
            found = await self._pool.run(GoldJob(ref, gold, self._options), key=gold)
        except QueryError as error:
            return error
        return GoldFound(tuple(map(str, found["notes"])), float(found["taken"]), bool(found["evidence"]))


def read_verdict(found: Any) -> Verdict:
    """A verdict that a worker gave; raises `QueryError` if it is none."""
    try:
        data = {name: _cells(value) for name, value in found["data"].items()}
        passed = {True: True, False: False, None: None}[found["passed"]]
        return Verdict(passed, tuple(map(str, found["reasons"])), data)
    except (AttributeError, KeyError, TypeError) as error:
        raise QueryError(Failure.ERROR, "The query damaged the database's engine.") from error


def _cells(value: Any) -> Any:
    return tuple(map(_cells, value)) if isinstance(value, list) else value


def _bare(sql: str) -> str:
    return sql.strip().rstrip(";").rstrip()


def _lasts(verdict: Verdict) -> bool:
    return verdict.passed is not None and verdict.data.get("failure") not in _BY_CHANCE
