"""Judge a prediction by execution, inside a worker: compare its results with the gold query's answers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from rlfactory_core.types import Verdict
from rlfactory_nl2sql.checks.constants import Uses, uses
from rlfactory_nl2sql.checks.parsing import parse_query, same_form
from rlfactory_nl2sql.comparison.answer import Answer
from rlfactory_nl2sql.comparison.compare import CELL, cell, compare, number_of
from rlfactory_nl2sql.connection import QueryError, Row, Rows
from rlfactory_nl2sql.databases.limiting import SLOW
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.verification.connections import Connections, Database
from rlfactory_nl2sql.verification.gold import Answers, Clock, GoldJob, Instances, instance_name

_COLUMNS = 12  # shown of a row
_LOOKED_AT = 1000  # rows of each side, for those to show
_LONGEST = 5_000  # characters of a prediction whose constants are used
_OWN = 0.4  # share of its seconds that a prediction has, however long it waits
Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PredictionJob:
    """Compare a prediction's results with the shared `Gold.answers`; returns a `Verdict`, see `SqlVerifier.verify`."""

    ref: DatabaseRef
    prediction: str
    ends_soon: bool = False  # it is only a beginning, which has `SLOW` of a prediction's seconds
    asked: float = field(default_factory=time.monotonic)  # also of one that begins again

    def seconds(self, limit: float) -> float:
        """What it has of a prediction's seconds. Waiting counts, but on a busy machine `_OWN` of them are left."""
        left = self.asked + limit - time.monotonic()
        return SLOW * limit if self.ends_soon else max(left, _OWN * limit)

    def run(self, connections: Connections) -> Verdict:
        gold, instances = connections.shared()

        def judge(database: Database) -> Verdict:
            return _Judging(self, gold, instances, database, connections).judge()

        return connections.use(self.ref, gold.options.limits, judge)


class _Judging:
    """A prediction on one database after the other, and what these say of it."""

    def __init__(
        self, job: PredictionJob, gold: GoldJob, instances: Instances, database: Database, connections: Connections
    ) -> None:
        self._job, self._gold, self._instances, self._options = job, gold, instances, gold.options
        self._database, self._connections, limits = database, connections, gold.options.limits
        # What moves a query to another worker is the work that it does: on a busy machine any takes long.
        self._limits = replace(limits, cpu_share=1.0, patience=1 / SLOW) if job.ends_soon else limits
        self._clock = Clock(job.seconds(limits.seconds), limits.seconds)
        self._compared = 0
        self._firm = False  # equal to an answer that is evidence, and that does not hang on ties
        self._tied = False  # equal to one of the answers where several are right
        self._unequal = False  # to none of these; perhaps it only treats ties in another way

    def judge(self) -> Verdict:
        for number, (rows, answer) in enumerate(self._instances):
            if answer is not None and (wrong := self._wrong(number, rows, answer)):
                return wrong
        if not self._firm and not (self._tied and not self._unequal):
            same = self._same_form()
            return self._verdict(passed=True) if same else self._verdict(self._why_unknown(), passed=None)
        if self._options.instances == 1 or not self._options.confirmed:
            return self._verdict(passed=True)
        try:
            confirming = self._confirming()
        except QueryError as error:  # without them, a machine under load would accept more than another
            return self._verdict(f"the right query, on the databases that confirm a verdict: {error}", passed=None)
        for number, (rows, answer) in enumerate(confirming, len(self._instances)):
            if wrong := self._wrong(number, rows, answer):
                return wrong
        return self._verdict(passed=True)

    def _confirming(self) -> Sequence[tuple[bytes, Answer]]:
        """Varied databases around the constants of both queries, and the gold query's answers there.

        Raises `QueryError` if these take the gold query longer than it may.
        """
        used = self._uses(self._gold.gold)
        if len(self._job.prediction) <= _LONGEST:
            with suppress(QueryError):  # the database knows more SQL than our parser
                used |= self._uses(self._job.prediction)
        return self._database.once(
            (self._gold, used), lambda: list(Answers(self._gold, self._database, self._connections).confirm(used))
        )

    def _uses(self, sql: str) -> Uses:
        database = self._database
        return database.once(
            (Uses, sql),
            lambda: uses(parse_query(sql, self._job.ref.kind), database.connection.schema(), database.shaped()),
        )

    def _same_form(self) -> bool:
        try:
            return same_form(self._gold.gold, self._job.prediction, self._job.ref.kind)
        except QueryError:
            return False

    def _verdict(self, *reasons: str, passed: bool | None, **data: Any) -> Verdict:
        measured = {"instances": self._compared, "prediction_seconds": round(self._clock.used, 6)}
        return Verdict(passed, reasons, measured | data)

    def _why_unknown(self) -> str:
        """Why a prediction without evidence cannot be verified."""
        if self._tied or self._unequal:
            return "no evidence: the right query's answer depends on how the database breaks ties"
        return (
            f"no evidence: on {number_of(self._compared, 'instance')} of the database the right query gives no rows, "
            "or only 0 and NULL, wherever its data are not the given ones"
        )

    def _wrong(self, number: int, varied: bytes | None, answer: Answer) -> Verdict | None:
        """The verdict if the prediction fails, or differs from the answer, on a database with these pickled rows."""
        job, clock, database = self._job, self._clock, self._database
        connection = database.connection if varied is None else database.varied(self._gold.gold, varied)
        # If it does not notice its deadline, the client waits longer for a beginning.
        self._connections.clock(clock.left / SLOW if job.ends_soon else clock.left)
        try:
            rows = clock.query(connection, job.prediction, self._limits, clock.left)
        except QueryError as error:
            return failed(f" on {instance_name(number)}", error, clock.used, self._compared)
        self._compared += 1
        difference = compare(answer, rows, self._options.comparison)
        if difference is not None and not answer.may_break_ties(rows):
            return self._differing(answer, rows, f"on {instance_name(number)}: {difference}")
        # The given database is no evidence: a query can hold what was read from it. It is if nothing else is asked.
        if number or self._options.instances == 1:
            equal = difference is None
            self._firm |= not answer.tied and equal and answer.is_evidence
            self._tied |= answer.tied and equal and answer.is_evidence
            self._unequal |= answer.tied and not equal
        return None

    def _differing(self, answer: Answer, rows: Rows, reason: str) -> Verdict:
        shown = self._options.shown
        if not shown:
            return self._verdict(reason, passed=False)
        gold = [_cells(row) for row in islice((row for tie in answer.ties for row in tie.rows), _LOOKED_AT)]
        got = [_cells(row) for row in rows.rows[:_LOOKED_AT]]
        sides = (("expected", answer.columns, gold, got), ("got", rows.columns, got, gold))
        data = {side: (_names(names), *_differing_first(some, others)[:shown]) for side, names, some, others in sides}
        return self._verdict(reason, passed=False, **data)


def failed(where: str, error: QueryError, seconds: float, instances: int) -> Verdict:
    """The verdict on a prediction that fails."""
    data = {"instances": instances, "prediction_seconds": round(seconds, 6), "failure": error.failure.value}
    return Verdict(passed=False, reasons=(f"the prediction fails{where}: {error}",), data=data)


def _differing_first(rows: Sequence[Cells], others: Sequence[Cells]) -> list[Cells]:
    """First the rows that the other side lacks or has less often, then the rest."""
    left = Counter(others)
    differing: list[Cells] = []
    same: list[Cells] = []
    for row in rows:
        (same if left[row] > 0 else differing).append(row)
        left[row] -= 1
    return differing + same


def _cells(row: Row) -> Cells:
    return tuple(map(cell, row[:_COLUMNS]))


def _names(columns: Sequence[str]) -> Cells:
    return tuple(name[:CELL] for name in columns[:_COLUMNS])
