"""A gold query's answers, found inside a worker on the given database and on varied ones."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product

from rlfactory_core.errors import BackendError, ConfigError
from rlfactory_nl2sql.checks.constants import Constant, Uses, constants
from rlfactory_nl2sql.checks.ordering import Cut, cut, inner_limits, is_ordered, tie_breaks
from rlfactory_nl2sql.checks.parsing import Query, parse_query
from rlfactory_nl2sql.checks.thresholds import thresholds
from rlfactory_nl2sql.comparison.answer import Answer, answer_of, same_rows
from rlfactory_nl2sql.comparison.compare import Comparison
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, Rows, TableRows
from rlfactory_nl2sql.databases.limiting import late
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.instances.links import SHARES, links_of, subsample
from rlfactory_nl2sql.instances.rows import CHARACTERS
from rlfactory_nl2sql.instances.vary import vary
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.verification.connections import PREPARE_S, Connections, Database

_OTHER_SEEDS = (1, 2, 3)  # added to the seed, for more varied databases
_CONFIRMING = 4  # likewise, for those that confirm
_SAMPLED = 5_000  # most rows of each table from which sub-samples are drawn


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Options of `verifier.SqlVerifier`."""

    comparison: Comparison = field(default_factory=Comparison)
    instances: int = 5  # databases to compare on: the given one and varied ones
    seed: int = 0  # of the varied databases
    limits: QueryLimits = field(default_factory=QueryLimits)  # of a prediction; seconds for all instances
    gold_seconds: float = 30.0  # for the gold query on all instances
    shown: int = 0  # rows of differing results to include in the verdict's data, for display
    confirmed: int = 16  # further databases, for the constants of both queries, before a prediction passes

    def __post_init__(self) -> None:
        if self.instances < 1:
            raise ConfigError(f"A prediction is compared on at least 1 instance of its database, not {self.instances}.")
        if not (self.limits.seconds > 0 and self.gold_seconds > 0):
            given = f"{self.limits.seconds} for a prediction, {self.gold_seconds} for a gold query"
            raise ConfigError(f"A query needs more than 0 seconds. Got {given}.")


Instances = Sequence[tuple[bytes | None, Answer | None]]
"""A database's pickled rows, or None for the given database, with the answer there, or None if the query fails."""


@dataclass(frozen=True, slots=True)
class Gold:
    """The gold query's answers."""

    answers: bytes  # pickled: the `GoldJob` and its `Instances`
    notes: tuple[str, ...]  # about instances that are left out
    seconds: float
    evidence: bool  # whether an answer other than the given database's can tell a right prediction from others


def _read(named: frozenset[str], schema: Schema) -> set[str]:
    """The tables of these names, and those that they refer to; all tables, if one is a view."""
    if any(table.view and table.name.lower() in named for table in schema.tables):
        return {table.name for table in schema.tables}
    links, found = links_of(schema), set[str]()
    left = [table.name for table in schema.tables if table.name.lower() in named]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += [link.target for link in links[name]]
    return found


@dataclass(frozen=True, slots=True)
class GoldJob:
    """Compute a gold query's answers; returns `Gold`, or raises `QueryError` if it fails on the given database."""

    ref: DatabaseRef
    gold: str
    options: VerifyOptions

    def run(self, connections: Connections) -> Gold:
        return connections.use(
            self.ref, self.options.limits, lambda database: Answers(self, database, connections).find()
        )


class Answers:
    """The search for a gold query's answers on the given database, on varied ones, and on more if these say nothing."""

    def __init__(self, job: GoldJob, database: Database, connections: Connections) -> None:
        self._job = job
        self._options = job.options
        self._database = database
        self._connections = connections
        self._schema = database.connection.schema()
        self._query = parse_query(job.gold, job.ref.kind)
        self._folded = job.ref.kind == "mysql" or any(table.collated for table in self._schema.tables)
        self._inner, self._cut = inner_limits(self._query), cache(cut)
        self._thresholds = thresholds(self._query, self._schema)
        self._tie_breaks = cache(lambda query, columns: tie_breaks(query, self._schema, columns))
        self._clock = Clock(self._options.gold_seconds)
        self._instances: list[tuple[bytes | None, Answer | None]] = []
        self._notes: list[str] = []

    def find(self) -> Gold:
        """Raises `QueryError` if the query fails on the given database."""
        literals = constants(self._query, self._schema, self._database.shaped())
        self._instances.append((None, self._timed_answer(self._database.connection)))
        for number in range(1, self._options.instances):
            try:
                rows, varied = self._vary(self._database.rows(), literals, self._options.seed, number)
            except BackendError as error:
                self._notes.append(f"only {number} of {self._options.instances} instances are compared: {error}")
                break
            try:
                self._instances.append((rows, self._timed_answer(varied)))
            except QueryError as error:
                self._instances.append((rows, None))
                self._notes.append(f"{instance_name(number)} is left out, where the gold query fails: {error}")
        if len(self._instances) > 1 and _read(self._query.tables, self._schema) and not self._suffices():
            self._extend(literals)
        compared = self._instances[1:] if self._options.instances > 1 else self._instances
        evidence = any(answer is not None and answer.is_evidence for _, answer in compared)
        answers = pickle.dumps((self._job, self._instances), pickle.HIGHEST_PROTOCOL)
        return Gold(answers, tuple(self._notes), self._clock.used, evidence)

    def confirm(self, used: Uses) -> Iterator[tuple[bytes, Answer]]:
        """Further varied databases, pickled, with the query's answers; without those where it fails.

        Tables that neither query needs stay empty.

        Raises `QueryError` with `Failure.DEADLINE` when the query's time is over.
        """
        needed = _read(used.tables, self._schema)
        data = {name: rows for name, rows in self._database.rows().items() if name in needed}
        for number in range(1, self._options.confirmed + 1 if needed else 0):
            try:
                seed = self._options.seed + _CONFIRMING
                rows, varied = self._vary(data, used.constants, seed, number, used)
                yield rows, self._answer(varied)  # each of its queries has its own deadline
            except BackendError:
                continue
            except QueryError as error:
                if error.failure is Failure.DEADLINE:
                    raise

    def _vary(
        self,
        data: TableRows,
        literals: Sequence[Constant],
        seed: int,
        number: int,
        used: Uses | None = None,
    ) -> tuple[bytes, Connection]:
        """A varied database's pickled rows, and itself."""
        self._connections.clock(PREPARE_S)
        rows = pickle.dumps(vary(self._schema, data, literals, seed, number, used, self._thresholds))
        return rows, self._database.varied(self._job.gold, rows)

    def _suffices(self) -> bool:
        """Whether the varied databases tell a right prediction from others."""
        return self._has_evidence() and len(self._different()) > 1  # a constant has answers that are all equal

    def _has_evidence(self) -> bool:
        varied = [answer for _, answer in self._instances[1:] if answer is not None]
        firm = sum(answer.is_evidence and not answer.tied for answer in varied)
        return firm >= (2 if any(answer.tied for answer in varied) else 1)  # what hangs on ties is replaced

    def _different(self) -> set[bytes]:
        return {pickle.dumps(answer) for _, answer in self._instances if answer is not None and not answer.tied}

    def _extend(self, literals: Sequence[Constant]) -> None:
        """Add databases on which the query has an answer, until they suffice or none is left to try."""
        for rows in self._more(literals):
            if self._clock.left < self._options.gold_seconds / 2:
                return
            try:
                made = self._database.connection.instance(rows)
            except BackendError:
                return
            try:
                answer = self._timed_answer(made)
            except QueryError:
                continue
            finally:
                made.close()
            helps = not self._has_evidence() or pickle.dumps(answer) not in self._different()
            if answer.is_evidence and not answer.tied and helps:
                self._instances.append((pickle.dumps(rows), answer))
                if self._suffices():
                    return

    def _more(self, literals: Sequence[Constant]) -> Iterator[TableRows]:
        """Varied databases of other seeds, then sub-samples of the given rows."""
        seed, sampled = self._options.seed, self._database.rows()
        for other, number in product(_OTHER_SEEDS, range(1, len(CHARACTERS) + 1)):
            yield vary(self._schema, sampled, literals, seed + other, number, thresholds=self._thresholds)
        read = self._database.connection.read
        rows = {table.name: read(table.name, _SAMPLED) for table in self._schema.tables if not table.view}
        for other, share in product((0, *_OTHER_SEEDS), SHARES):
            yield subsample(self._schema, rows, share, seed + other)

    def _timed_answer(self, connection: Connection) -> Answer:
        self._connections.clock(self._clock.left)
        return self._answer(connection)

    def _answer(self, connection: Connection) -> Answer:
        answer = self._answer_of(self._query, connection)
        tied = any(self._cuts(inner, connection) for inner in self._inner)
        return replace(answer, tied=True, certain=(), fewest=0) if tied else answer

    def _cuts(self, inner: Query, connection: Connection) -> bool:
        """Whether a SELECT within the query cuts a tie; False if it is no query of its own."""
        try:
            found = self._answer_of(inner, connection)
        except QueryError:  # it may need columns of the query around it
            return False
        return found.tied or found.repeated

    def _answer_of(self, query: Query, connection: Connection) -> Answer:
        """The answer of a query; tied without certain rows if not all right answers are known."""
        ordered, breaks = is_ordered(query), self._tie_breaks
        own = self._run(connection, query.sql, 2 if breaks(query, 1) else 1)
        if not breaks(query, 1):
            return answer_of([own], ordered=ordered)
        within = self._cut(query)
        try:
            for each in within.wider:
                sqls = breaks(each, len(own.columns)) or [each.sql]
                readings = [Rows(own.columns, self._run(connection, sql, 4).rows) for sql in sqls]
                found = answer_of(readings, within.limit, within.offset, ordered=ordered, folded=self._folded)
                if found.whole and same_rows([own, *(_part(one, within) for one in readings)]):
                    return found
            if same_rows(readings):
                return found
        except QueryError:  # for example too many rows, or values that PostgreSQL does not sort, such as JSON
            pass
        return replace(answer_of([own], ordered=False), tied=True, fewest=0)

    def _run(self, connection: Connection, sql: str, part: int) -> Rows:
        """The result of a query that may take this part of the time that is left."""
        return self._clock.query(connection, sql, self._options.limits, self._clock.left / part)


def _part(rows: Rows, cut: Cut) -> Rows:
    return Rows(rows.columns, rows.rows[cut.offset :][: cut.limit])


class Clock:
    """A time budget shared by several queries."""

    def __init__(self, seconds: float, of: float = 0.0) -> None:
        """``of``: the seconds that an error names, if these are a part of them."""
        self._seconds, self._of = seconds, of or seconds
        self.used = 0.0

    @property
    def left(self) -> float:
        return self._seconds - self.used

    def query(self, connection: Connection, sql: str, limits: QueryLimits, seconds: float) -> Rows:
        limits = replace(limits, seconds=seconds)
        began = time.perf_counter()
        connection.used = 0.0
        try:
            if seconds <= 0:
                raise late(self._of)
            return connection.query(sql, limits)
        except QueryError as error:
            if error.failure is Failure.DEADLINE:
                raise late(self._of) from None
            raise
        finally:
            self.used += connection.used if connection.counts_work else time.perf_counter() - began


def instance_name(number: int) -> str:
    """What a reason calls the database of this number."""
    return f"varied database {number}" if number else "the given database"
