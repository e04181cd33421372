"""Judge a prediction by execution, inside a worker: compare its results with the gold query's answers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rlfactory_core.types import Verdict
from rlfactory_nl2sql.checks.constants import Uses, uses
from rlfactory_nl2sql.checks.parsing import parse_query, same_form
from rlfactory_nl2sql.comparison.compare import CELL, Answer, cell, compare, number_of
from rlfactory_nl2sql.connection import Failure, QueryError, Row, Rows
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.verification.connections import Connections, Database
from rlfactory_nl2sql.verification.gold import GoldJob, Instance, instance_name

_COLUMNS = 12  # shown of a row
_LOOKED_AT = 1000  # rows of each side, for those to show
_LONGEST = 5_000  # characters of a prediction whose constants are used
Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PredictionJob:
    """Compare a prediction's results with the gold query's answers; returns a `Verdict`, see `SqlVerifier.verify`."""

    gold: GoldJob
    prediction: str

    @property
    def ref(self) -> DatabaseRef:
        return self.gold.ref

    @property
    def seconds(self) -> float:
        return self.gold.options.limits.seconds

    def run(self, connections: Connections) -> Verdict:
        limits = self.gold.options.limits
        return connections.use(self.ref, limits, lambda database: _Judging(self, database, connections).judge())


class _Judging:
    """A prediction on one database after the other, and what these say of it."""

    def __init__(self, job: PredictionJob, database: Database, connections: Connections) -> None:
        self._job, self._database, self._options = job, database, job.gold.options
        self._gold = job.gold.gold(database)
        self._clock, self._begins = connections.clock(job.seconds), connections.share < 1
        self._compared = 0
        self._firm = False  # equal to an answer that is evidence
        self._tied = False  # an answer hangs on how ties are broken

    def judge(self) -> Verdict:
        for number, instance in enumerate(self._gold.instances):
            if wrong := self._wrong(number, instance):
                return wrong
        if not self._firm:
            same = self._same_form()
            return self._verdict(passed=True) if same else self._verdict(self._why_unknown(), passed=None)
        if self._options.instances == 1 or not self._options.confirmed:
            return self._verdict(passed=True)
        try:
            confirming = self._gold.confirming(self._uses_of_both())
        except QueryError as error:
            return self._verdict(f"the right query, on the databases that confirm a verdict: {error}", passed=None)
        for number, instance in enumerate(confirming, len(self._gold.instances)):
            if wrong := self._wrong(number, instance):
                return wrong
        return self._verdict(passed=True)

    def _uses_of_both(self) -> Uses:
        used, prediction = self._gold.uses, self._job.prediction
        if len(prediction) <= _LONGEST:
            with suppress(QueryError):  # the database knows more SQL than our parser
                parsed, schema = parse_query(prediction, self._job.ref.kind), self._database.connection.schema()
                used |= uses(parsed, schema, self._database.shaped)
        return used

    def _same_form(self) -> bool:
        try:
            return same_form(self._job.gold.sql, self._job.prediction, self._job.ref.kind)
        except QueryError:
            return False

    def _verdict(self, *reasons: str, passed: bool | None, **data: Any) -> Verdict:
        measured = {"instances": self._compared, "prediction_seconds": round(self._clock.used, 6)}
        return Verdict(passed, reasons, measured | data)

    def _why_unknown(self) -> str:
        """Why a prediction without evidence cannot be verified."""
        if self._tied:
            return "no evidence: the right query's answer depends on how the database breaks ties"
        return (
            f"no evidence: on {number_of(self._compared, 'instance')} of the database the right query gives no rows, "
            "or only 0 and NULL, wherever its data are not the given ones"
        )

    def _wrong(self, number: int, instance: Instance) -> Verdict | None:
        """The verdict if the prediction fails, or differs from the answer, on one database."""
        answer, where = instance.answer, instance_name(number)
        if answer is None:
            return None
        try:
            rows = self._clock.query(instance.connection, self._job.prediction, self._options.limits)
        except QueryError as error:
            if self._begins and error.failure is Failure.DEADLINE:
                raise  # it begins again, with all of its seconds
            return failed(f" on {where}", error, self._clock.used, self._compared)
        difference = None if answer.tied else compare(answer, rows, self._options.comparison)
        if answer.tied or (difference is not None and answer.may_repeat(rows)):
            self._tied = True
            return None
        self._compared += 1
        if difference is not None:
            return self._differing(answer, rows, f"on {where}: {difference}")
        # The given database is no evidence: a query can hold what was read from it. It is if nothing else is asked.
        self._firm |= answer.is_evidence and (number > 0 or self._options.instances == 1)
        return None

    def _differing(self, answer: Answer, rows: Rows, reason: str) -> Verdict:
        shown = self._options.shown
        if not shown:
            return self._verdict(reason, passed=False)
        gold, got = ([_cells(row) for row in side.rows[:_LOOKED_AT]] for side in (answer.result, rows))
        sides = (("expected", answer.result.columns, gold, got), ("got", rows.columns, got, gold))
        data = {
            side: (tuple(name[:CELL] for name in names[:_COLUMNS]), *sorted(some, key={*others}.__contains__)[:shown])
            for side, names, some, others in sides  # first the rows that the other side lacks
        }
        return self._verdict(reason, passed=False, **data)


def failed(where: str, error: QueryError, seconds: float, instances: int) -> Verdict:
    """The verdict on a prediction that fails."""
    data = {"instances": instances, "prediction_seconds": round(seconds, 6), "failure": error.failure.value}
    return Verdict(passed=False, reasons=(f"the prediction fails{where}: {error}",), data=data)


def _cells(row: Row) -> Cells:
    return tuple(map(cell, row[:_COLUMNS]))
