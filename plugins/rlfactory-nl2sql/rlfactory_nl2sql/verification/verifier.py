"""The verdict on a predicted query: does it give the gold query's answer?

One database is not enough: a wrong query often has the right result by accident, and a constant always has. So both
queries run on several instances: the given database, and varied ones of the same schema. The gold query's answers are
computed once and kept.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from rlfactory_core.errors import BackendError, VerifierError
from rlfactory_core.types import Verdict
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases.limiting import late
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.verification.connections import PREPARE_S, Content, content
from rlfactory_nl2sql.verification.gold import Gold, GoldJob, VerifyOptions
from rlfactory_nl2sql.verification.judging import PredictionJob, failed
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.shared import Shared

_KEPT_BYTES = 256 << 20  # of gold answers
_KEPT_VERDICTS = 10_000
_BY_CHANCE = (Failure.DEADLINE.value, Failure.MEMORY.value)  # they depend on what else the machine does

Key = tuple[DatabaseRef, Content, str]


class SqlVerifier:
    """Judges predictions in the pool's workers, any number at once. The caller closes the pool."""

    def __init__(self, pool: WorkerPool, options: VerifyOptions | None = None) -> None:
        self._pool = pool
        self._options = options or VerifyOptions()
        self._golds: Shared[Key, Gold | QueryError] = Shared(_KEPT_BYTES, _bytes)
        self._verdicts: Shared[tuple[Key, str], Verdict] = Shared(_KEPT_VERDICTS, _once)  # a group's are often the same

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
            data["gold_seconds"] = round(answers.seconds, 6)
            if _bare(prediction) == _bare(gold):
                return Verdict(passed=True, reasons=answers.notes, data=data)
            found = await self._verdicts.get((key, prediction), lambda: self._judge(key, answers, prediction))
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
        return isinstance(answers, Gold) and answers.evidence

    async def _judge(self, key: Key, answers: Gold, prediction: str) -> Verdict:
        (ref, _, gold), seconds = key, self._options.limits.seconds
        run = partial(self._pool.run, deadline_s=seconds, affinity=gold, prepare_s=PREPARE_S, content=answers.answers)
        job = PredictionJob(ref, prediction, ends_soon=ref.is_file)
        try:
            verdict: Verdict = await run(job)
            if job.ends_soon and verdict.data.get("failure") == Failure.DEADLINE.value:
                verdict = await run(replace(job, ends_soon=False), slow=True)
        except QueryError as error:  # it ended its process, or was killed with it
            return failed("", late(seconds) if error.failure is Failure.DEADLINE else error, seconds, 0)
        return verdict

    async def _gold(self, key: Key) -> Gold | QueryError:
        """The gold query's answers, or its error."""
        return await self._golds.get(key, lambda: self._find(key))

    async def _find(self, key: Key) -> Gold | QueryError:
        ref, _, gold = key
        seconds = self._options.gold_seconds
        try:
            found: Gold = await self._pool.run(GoldJob(ref, gold, self._options), seconds, gold, prepare_s=PREPARE_S)
        except QueryError as error:
            return late(seconds) if error.failure is Failure.DEADLINE else error
        return found


def _bare(sql: str) -> str:
    return sql.strip().rstrip(";").rstrip()


def _bytes(found: Gold | QueryError) -> int:
    return 1024 + (len(found.answers) if isinstance(found, Gold) else 0)


def _once(verdict: Verdict) -> int | None:
    return None if verdict.data.get("failure") in _BY_CHANCE or verdict.passed is None else 1
