"""The verdict on a predicted query: does it give the gold query's answer?

One database is not enough: a wrong query often has the right result by accident, and a constant always has. So both
queries run on several instances: the given database, and varied ones of the same schema. The gold query's answers are
computed once and kept.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import BackendError, VerifierError
from rlfactory_core.types import Verdict
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.verification.connections import Content, content
from rlfactory_nl2sql.verification.gold import PREPARE_S, Gold, GoldJob, VerifyOptions, late
from rlfactory_nl2sql.verification.judging import Outcome, PredictionJob, failed
from rlfactory_nl2sql.verification.pool import WorkerPool

_KEPT_BYTES = 256 << 20  # of gold answers
_KEPT_OUTCOMES = 10_000
_BY_CHANCE = (Failure.DEADLINE, Failure.MEMORY)  # they depend on what else the machine does

Key = tuple[DatabaseRef, Content, str]


class SqlVerifier:
    """Judges predictions in the pool's workers, any number at once. The caller closes the pool."""

    def __init__(self, pool: WorkerPool, options: VerifyOptions | None = None) -> None:
        self._pool = pool
        self._options = options or VerifyOptions()
        self._golds: OrderedDict[Key, Gold | QueryError] = OrderedDict()
        self._kept_bytes = 0
        self._finding: dict[Key, asyncio.Task[Gold | QueryError]] = {}
        self._judging: dict[tuple[Key, str], _Shared] = {}
        self._outcomes: OrderedDict[tuple[Key, str], Outcome] = OrderedDict()  # least recently used first

    async def verify(self, ref: DatabaseRef, gold: str, prediction: str) -> Verdict:
        """Whether ``prediction`` has the results of ``gold``, with reasons for a person who debugs a reward.

        ``passed`` is None if that is unknown: the gold query fails, the database does not answer, or no varied database
        gives evidence and the queries' canonical forms differ. ``data`` holds what is known of: ``semantics``;
        ``instances``, the number on which the results were compared; ``gold_seconds`` and ``prediction_seconds``, the
        database's time; ``failure``, the `Failure` of the prediction; ``expected`` and ``got``.

        Raises:
            UsageError: the database's file is missing, or its package is not installed.
        """
        data: dict[str, Any] = {"semantics": self._options.comparison.semantics, "instances": 0}
        try:
            key = (ref, content(ref), gold)
            answers = await self._gold(key)
            if isinstance(answers, QueryError):
                return Verdict(None, (f"the gold query fails: {answers}",), data)
            data["gold_seconds"] = round(answers.seconds, 6)
            if _bare(prediction) == _bare(gold):
                return Verdict(passed=True, reasons=answers.notes, data=data)
            outcome = await self._judged((key, prediction), answers)
        except (BackendError, VerifierError) as error:
            return Verdict(None, (str(error),), data)
        data |= {"instances": outcome.instances, "prediction_seconds": round(outcome.seconds, 6)}
        if outcome.failure is not None:
            data["failure"] = outcome.failure.value
        if outcome.expected:
            data |= {"expected": outcome.expected, "got": outcome.got}
        reasons = (outcome.reason, *answers.notes) if outcome.reason else answers.notes
        return Verdict(outcome.passed, reasons, data)

    async def has_evidence(self, ref: DatabaseRef, gold: str) -> bool:
        """Whether predictions can be verified against a gold query; False if it fails, or the database does not answer.

        Raises:
            UsageError: as `verify`.
        """
        try:
            answers = await self._gold((ref, content(ref), gold))
        except (BackendError, VerifierError):
            return False
        return isinstance(answers, Gold) and answers.evidence

    async def _judged(self, key: tuple[Key, str], answers: Gold) -> Outcome:
        """The attempts of a group are often the same text, which is judged once, while the database is the same."""
        if known := self._outcomes.get(key):
            self._outcomes.move_to_end(key)
            return known
        shared = self._judging.get(key)
        if shared is None:
            task = asyncio.ensure_future(self._judge(key, answers))
            shared = self._judging[key] = _Shared(task)
        shared.callers += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.callers -= 1
            if not shared.callers:
                shared.task.cancel()  # each caller has given up, or it has ended
                self._judging.pop(key, None)

    async def _judge(self, key: tuple[Key, str], answers: Gold) -> Outcome:
        (ref, _, gold), prediction = key
        job = PredictionJob(ref, gold, answers, prediction, self._options)
        seconds = self._options.limits.seconds
        try:
            outcome: Outcome = await self._pool.run(job, PREPARE_S + seconds, gold)
        except QueryError as error:  # it ended its process, or was killed with it
            if error.failure is Failure.DEADLINE:
                error = late(seconds)
            return failed("", error, seconds, 0)
        if outcome.failure not in _BY_CHANCE and outcome.passed is not None:
            self._outcomes[key] = outcome
            if len(self._outcomes) > _KEPT_OUTCOMES:
                self._outcomes.popitem(last=False)
        return outcome

    async def _gold(self, key: Key) -> Gold | QueryError:
        """The gold query's answers, or its error. Concurrent callers share one computation."""
        if known := self._golds.get(key):
            self._golds.move_to_end(key)
            return known
        finding = self._finding.get(key)
        if finding is None:
            finding = self._finding[key] = asyncio.ensure_future(self._find(key))
            finding.add_done_callback(lambda done: self._found(key, done))
        return await asyncio.shield(finding)

    async def _find(self, key: Key) -> Gold | QueryError:
        ref, _, gold = key
        try:
            found: Gold = await self._pool.run(
                GoldJob(ref, gold, self._options), PREPARE_S + self._options.gold_seconds, gold
            )
        except QueryError as error:
            return late(self._options.gold_seconds) if error.failure is Failure.DEADLINE else error
        return found

    def _found(self, key: Key, done: asyncio.Task[Gold | QueryError]) -> None:
        del self._finding[key]
        if done.cancelled() or done.exception():
            return
        self._golds[key] = done.result()
        self._kept_bytes += _size(done.result())
        while self._kept_bytes > _KEPT_BYTES:
            self._kept_bytes -= _size(self._golds.popitem(last=False)[1])


@dataclass(slots=True)
class _Shared:
    """The judgement of one prediction that several callers wait for."""

    task: asyncio.Task[Outcome]
    callers: int = 0


def _bare(sql: str) -> str:
    return sql.strip().rstrip(";").rstrip()


def _size(found: Gold | QueryError) -> int:
    return 1024 + (len(found.answers) + sum(map(len, found.varied)) if isinstance(found, Gold) else 0)
