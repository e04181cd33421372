"""Judge predictions by execution, inside a worker: first the gold query's answers, then each prediction's results."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rlfactory_core.errors import BackendError, ConfigError
from rlfactory_nl2sql.checks.canonical import canonical
from rlfactory_nl2sql.checks.constants import constants
from rlfactory_nl2sql.checks.ordering import is_ordered
from rlfactory_nl2sql.checks.parsing import Query, parse_query
from rlfactory_nl2sql.checks.ties import untie
from rlfactory_nl2sql.comparison.answer import Answer, answer_of
from rlfactory_nl2sql.comparison.compare import Comparison, compare
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, Row, Rows
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.instances.vary import vary
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.verification.connections import Connections, Database


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Options of `verifier.SqlVerifier`."""

    comparison: Comparison = field(default_factory=Comparison)
    instances: int = 5  # databases to compare on: the given one and varied ones
    seed: int = 0  # of the varied databases
    limits: QueryLimits = field(default_factory=QueryLimits)  # of a prediction; seconds for all instances
    gold_seconds: float = 30.0  # for the gold query on all instances
    shown: int = 0  # rows of differing results to include in the verdict's data, for display

    def __post_init__(self) -> None:
        if self.instances < 1:
            raise ConfigError(f"A prediction is compared on at least 1 instance of its database, not {self.instances}.")
        if not (self.limits.seconds > 0 and self.gold_seconds > 0):
            given = f"{self.limits.seconds} for a prediction, {self.gold_seconds} for a gold query"
            raise ConfigError(f"A query needs more than 0 seconds. Got {given}.")


PREPARE_S = 60.0  # time to connect, and to read and vary a large database
_CELL = 60  # most characters shown of a value

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gold:
    """The gold query's answers."""

    answers: bytes  # pickled: an `Answer` for each instance, or None if the query fails there
    varied: tuple[bytes, ...]  # the rows of each varied instance, pickled
    notes: tuple[str, ...]  # about instances that are left out
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of judging a prediction."""

    passed: bool | None
    reason: str
    seconds: float  # of the prediction, over all instances
    instances: int  # number on which the results were compared
    failure: Failure | None = None  # the prediction's
    expected: tuple[Cells, ...] = ()  # if results differ: the column names and rows of the gold query's answer
    got: tuple[Cells, ...] = ()  # and those of the prediction


@dataclass(frozen=True, slots=True)
class GoldJob:
    """Compute a gold query's answers; returns `Gold`, or raises `QueryError` if it fails on the given database."""

    ref: DatabaseRef
    gold: str
    options: VerifyOptions

    def run(self, connections: Connections) -> Gold:
        return connections.use(self.ref, self.options.limits, lambda database: self._answers(database, connections))

    def _answers(self, database: Database, connections: Connections) -> Gold:
        query = parse_query(self.gold, self.ref.kind)
        schema = database.connection.schema()
        notes: list[str] = []
        varied: list[Connection] = []
        packed: list[bytes] = []
        try:
            literals = constants(query, schema)
            for number in range(1, self.options.instances):
                made = pickle.dumps(vary(schema, database.rows(), literals, self.options.seed, number))
                varied.append(database.varied(_key(self), number, made))
                packed.append(made)
        except BackendError as error:
            notes.append(f"only {len(packed) + 1} of {self.options.instances} instances are compared: {error}")
        clock = _Clock(self.options.gold_seconds)
        connections.clock(clock.left)
        answers: list[Answer | None] = [self._answer(database.connection, query, schema, clock)]
        for number, connection in enumerate(varied, 1):
            try:
                answers.append(self._answer(connection, query, schema, clock))
            except QueryError as error:
                answers.append(None)
                notes.append(f"{_name(number)} is left out, where the gold query fails: {error}")
        return Gold(pickle.dumps(tuple(answers), pickle.HIGHEST_PROTOCOL), tuple(packed), tuple(notes), clock.used)

    def _answer(self, connection: Connection, query: Query, schema: Schema, clock: _Clock) -> Answer:
        how = self.options.comparison
        untied = None if how.fixed else untie(query, schema)
        if untied is not None:
            try:
                rows = clock.query(connection, untied.sql, self.options.limits, clock.left / 2)
                return answer_of(rows, ordered=is_ordered(query), untied=untied, order=how.order)
            except QueryError:  # for example too many rows without the LIMIT: use the query's own rows
                pass
        rows = clock.query(connection, query.sql, self.options.limits, clock.left)
        return answer_of(rows, ordered=is_ordered(query), untied=None, order=how.order)


@dataclass(frozen=True, slots=True)
class PredictionJob:
    """Compare a prediction's results with the gold query's answers; returns `Outcome`."""

    ref: DatabaseRef
    gold: str
    found: Gold
    prediction: str
    options: VerifyOptions

    def run(self, connections: Connections) -> Outcome:
        return connections.use(self.ref, self.options.limits, lambda database: self._judge(database, connections))

    def _judge(self, database: Database, connections: Connections) -> Outcome:
        answers: tuple[Answer | None, ...] = connections.decoded(self.found.answers)
        clock = _Clock(self.options.limits.seconds)
        compared, evidence = 0, False
        for number, answer in enumerate(answers):
            if answer is None:
                continue
            connection = self._instance(database, number)
            connections.clock(clock.left)
            try:
                rows = clock.query(connection, self.prediction, self.options.limits, clock.left)
            except QueryError as error:
                return failed(f" on {_name(number)}", error, clock.used, compared)
            compared += 1
            difference = compare(answer, rows, self.options.comparison)
            if difference is not None:
                return self._differing(answer, rows, f"on {_name(number)}: {difference}", clock.used, compared)
            evidence = evidence or bool(rows.rows)
        if evidence or self._same_form(database):
            return Outcome(passed=True, reason="", seconds=clock.used, instances=compared)
        reason = f"no evidence: both queries give no rows on {compared} instance{'s'[compared == 1 :]} of the database"
        return Outcome(passed=None, reason=reason, seconds=clock.used, instances=compared)

    def _instance(self, database: Database, number: int) -> Connection:
        if not number:
            return database.connection
        return database.varied(_key(self), number, self.found.varied[number - 1])

    def _differing(self, answer: Answer, rows: Rows, reason: str, seconds: float, compared: int) -> Outcome:
        found = Outcome(passed=False, reason=reason, seconds=seconds, instances=compared)
        shown = self.options.shown
        if not shown:
            return found
        gold = [_cells(row) for tie in answer.ties for row in tie.rows]
        got = [_cells(row) for row in rows.rows]
        return replace(
            found,
            expected=(answer.columns, *_differing_first(gold, got)[:shown]),
            got=(rows.columns, *_differing_first(got, gold)[:shown]),
        )

    def _same_form(self, database: Database) -> bool:
        schema, kind = database.connection.schema(), self.ref.kind
        try:
            gold, prediction = (canonical(parse_query(sql, kind), schema) for sql in (self.gold, self.prediction))
            return gold == prediction
        except QueryError:
            return False


class _Clock:
    """A time budget shared by several queries."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.used = 0.0

    @property
    def left(self) -> float:
        return self._seconds - self.used

    def query(self, connection: Connection, sql: str, limits: QueryLimits, seconds: float) -> Rows:
        began = time.perf_counter()
        try:
            if seconds <= 0:
                raise QueryError(Failure.DEADLINE, "")
            return connection.query(sql, replace(limits, seconds=seconds))
        except QueryError as error:
            if error.failure is Failure.DEADLINE:
                raise late(self._seconds) from None
            raise
        finally:
            self.used += time.perf_counter() - began


def failed(where: str, error: QueryError, seconds: float, instances: int) -> Outcome:
    """The outcome of a prediction that fails."""
    reason = f"the prediction fails{where}: {error}"
    return Outcome(passed=False, reason=reason, seconds=seconds, instances=instances, failure=error.failure)


def late(seconds: float) -> QueryError:
    return QueryError(Failure.DEADLINE, f"it took longer than {seconds:g} s.")


def _key(job: GoldJob | PredictionJob) -> str:
    return f"{job.options.seed} {job.gold}"


def _name(number: int) -> str:
    return f"varied database {number}" if number else "the given database"


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
    return tuple(_cell(value) for value in row)


def _cell(value: object) -> str:
    text = "NULL" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"
