"""The verdict on a predicted query: does it give the gold query's answer?

One database is not enough: a wrong query often has the right result by accident, and a constant always has. So both
queries run on several instances: the given database, and varied ones of the same schema. The gold query's answers are
computed once and kept.
"""

from __future__ import annotations

from typing import Any

from rlfactory_core.errors import BackendError, VerifierError
from rlfactory_core.types import Verdict
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases.limiting import SLOW
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.verification.connections import PREPARE_S, Content, content
from rlfactory_nl2sql.verification.gold import Gold, GoldJob, VerifyOptions, late
from rlfactory_nl2sql.verification.judging import Outcome, PredictionJob, failed
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.shared import Shared

_KEPT_BYTES = 256 << 20  # of gold answers
_KEPT_OUTCOMES = 10_000
_BY_CHANCE = (Failure.DEADLINE, Failure.MEMORY)  # they depend on what else the machine does

Key = tuple[DatabaseRef, Content, str]


class SqlVerifier:
    """Judges predictions in the pool's workers, any number at once. The caller closes the pool."""

    def __init__(self, pool: WorkerPool, options: VerifyOptions | None = None) -> None:
        self._pool = pool
        self._options = options or VerifyOptions()
        self._golds: Shared[Key, Gold | QueryError] = Shared(_KEPT_BYTES, _bytes)
        self._outcomes: Shared[tuple[Key, str], Outcome] = Shared(_KEPT_OUTCOMES, _once)  # a group's are often the same

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
            outcome = await self._outcomes.get((key, prediction), lambda: self._judge(key, answers, prediction))
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

    async def _judge(self, key: Key, answers: Gold, prediction: str) -> Outcome:
        (ref, _, gold), seconds, content = key, self._options.limits.seconds, answers.answers
        try:
            for share in (SLOW, 1 - SLOW) if ref.is_file else (1.0,):
                job, slow = PredictionJob(ref, prediction, share), share == 1 - SLOW
                outcome: Outcome = await self._pool.run(
                    job, seconds, gold, prepare_s=PREPARE_S, slow=slow, content=content
                )
                if outcome.failure is not Failure.DEADLINE:
                    break
        except QueryError as error:  # it ended its process, or was killed with it
            late_too = error.failure is Failure.DEADLINE
            return failed("", late(seconds) if late_too else error, seconds, 0)
        return outcome

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


def _once(outcome: Outcome) -> int | None:
    return None if outcome.failure in _BY_CHANCE or outcome.passed is None else 1
