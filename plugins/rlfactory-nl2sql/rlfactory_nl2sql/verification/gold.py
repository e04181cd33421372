"""A gold query's answers on the given database and on varied ones, kept by the worker that judges its predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product

from rlfactory_core.errors import BackendError, ConfigError
from rlfactory_nl2sql.checks.constants import Constant, Uses, uses
from rlfactory_nl2sql.checks.ordering import Cut, cut, inner_cuts, is_ordered, tie_breaks
from rlfactory_nl2sql.checks.parsing import parse_query
from rlfactory_nl2sql.checks.thresholds import thresholds
from rlfactory_nl2sql.comparison.compare import Answer, Comparison, answer_of, is_cut, looks_cut
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, Rows, TableRows
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.instances.links import SHARES, links_of, subsample
from rlfactory_nl2sql.instances.rows import CHARACTERS
from rlfactory_nl2sql.instances.vary import vary
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.verification.connections import Clock, Connections, Database, close

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


@dataclass(frozen=True, slots=True)
class GoldFound:
    """What the client is told of a gold query."""

    notes: tuple[str, ...]  # about instances that are left out
    taken: float  # the database's seconds
    evidence: bool  # whether an answer other than the given database's can tell a right prediction from others


@dataclass(frozen=True, slots=True)
class GoldJob:
    """Find a gold query's answers; raises `QueryError` if it fails on the given database."""

    ref: DatabaseRef
    sql: str
    options: VerifyOptions

    @property
    def seconds(self) -> float:
        return self.options.gold_seconds

    def run(self, connections: Connections) -> GoldFound:
        return connections.use(self.ref, self.options.limits, lambda database: self.gold(database).found)

    def gold(self, database: Database) -> Gold:
        """The query with its answers, which the worker may have."""
        return database.copies(self, lambda: Gold(self, database))


@dataclass(frozen=True, slots=True)
class Instance:
    """A database, and the gold query's answer there; None if it fails."""

    connection: Connection
    answer: Answer | None


class Instances(list[Instance]):
    """Varied databases, with answers."""

    def close(self) -> None:
        for each in self:
            close(each.connection)


class Gold:
    """Searches for answers on the given database, on varied ones, and on more if these say nothing."""

    def __init__(self, job: GoldJob, database: Database) -> None:
        self._job, self._options, self._database = job, job.options, database
        self._schema = database.connection.schema()
        self._query = parse_query(job.sql, job.ref.kind)
        self._folded = job.ref.kind == "mysql" or any(table.collated for table in self._schema.tables)
        self._cut, self._inner = cut(self._query), inner_cuts(self._query)
        self._tie_breaks = cache(lambda query, columns: tie_breaks(query, self._schema, columns))
        self._thresholds = thresholds(self._query, self._schema)
        self._clock = Clock(self._options.gold_seconds)
        self._given = Instance(database.connection, self._answer(database.connection))
        self._varied = Instances()
        self._notes: list[str] = []
        try:
            self._find()
        except BaseException:
            self.close()
            raise

    @property
    def instances(self) -> Sequence[Instance]:
        """The given database, and the varied ones."""
        return (self._given, *self._varied)

    @property
    def found(self) -> GoldFound:
        return GoldFound(tuple(self._notes), self._clock.used, self._has_evidence())

    @cached_property
    def uses(self) -> Uses:
        """What the query uses of the data."""
        return uses(self._query, self._schema, self._database.shaped)

    def close(self) -> None:
        """Close the varied databases."""
        self._varied.close()

    def _find(self) -> None:
        wanted = self._options.instances
        for number in range(1, wanted):
            try:
                varied = self._vary(self._database.rows, self.uses.constants, self._options.seed, number)
            except BackendError as error:
                self._notes.append(f"only {number} of {wanted} instances are compared: {error}")
                break
            answer = None
            try:
                answer = self._answer(varied)
            except QueryError as error:
                self._notes.append(f"{instance_name(number)} is left out, where the gold query fails: {error}")
            self._varied.append(Instance(varied, answer))
        if self._varied and _read(self._query.tables, self._schema) and not self._suffices():
            self._extend()

    def confirming(self, used: Uses) -> Instances:
        """Varied databases around the constants of both queries, without those where the query fails.

        Tables that neither query needs stay empty. Raises `QueryError` with `Failure.DEADLINE` when the query's time is
        over.
        """
        return self._database.copies((self._job, used), lambda: self._confirm(used))

    def _confirm(self, used: Uses) -> Instances:
        needed = _read(used.tables, self._schema)
        data = {name: rows for name, rows in self._database.rows.items() if name in needed}
        self._clock, found = Clock(self._options.gold_seconds), Instances()
        for number in range(1, self._options.confirmed + 1 if needed else 0):
            with suppress(BackendError):
                varied = self._vary(data, used.constants, self._options.seed + _CONFIRMING, number, used)
                try:
                    found.append(Instance(varied, self._answer(varied)))
                except QueryError as error:
                    close(varied)
                    if error.failure is Failure.DEADLINE:
                        found.close()
                        raise
        return found

    def _vary(
        self, data: TableRows, literals: Sequence[Constant], seed: int, number: int, used: Uses | None = None
    ) -> Connection:
        rows = vary(self._schema, data, literals, seed, number, used, self._thresholds)
        return self._database.connection.instance(rows)

    def _suffices(self) -> bool:
        """Whether the varied databases tell a right prediction from others."""
        firm = {one.answer for one in self.instances if one.answer is not None and not one.answer.tied}
        return self._has_evidence() and len(firm) > 1  # a constant has answers that are all equal

    def _has_evidence(self) -> bool:
        """Whether an answer, other than the given database's, can tell a right prediction from others."""
        compared = self._varied if self._options.instances > 1 else (self._given,)
        return any(one.answer is not None and one.answer.is_evidence for one in compared)

    def _extend(self) -> None:
        """Add databases on which the query has an answer, until they suffice or none is left to try."""
        for rows in self._more():
            if self._clock.left < self._options.gold_seconds / 2 or self._suffices():
                return
            try:
                made, answer = self._database.connection.instance(rows), None
            except BackendError:
                return
            with suppress(QueryError):
                answer = self._answer(made)
            known = {one.answer for one in self.instances}
            if answer is None or not answer.is_evidence or (self._has_evidence() and answer in known):
                made.close()
            else:
                self._varied.append(Instance(made, answer))

    def _more(self) -> Iterator[TableRows]:
        """Varied databases of other seeds, then sub-samples of the given rows."""
        seed, sampled, literals = self._options.seed, self._database.rows, self.uses.constants
        for other, number in product(_OTHER_SEEDS, range(1, len(CHARACTERS) + 1)):
            yield vary(self._schema, sampled, literals, seed + other, number, thresholds=self._thresholds)
        rows = self._database.read(_SAMPLED)
        for other, share in product((0, *_OTHER_SEEDS), SHARES):
            yield subsample(self._schema, rows, share, seed + other)

    def _answer(self, connection: Connection) -> Answer:
        """The query's answer; tied if a LIMIT in it chooses among rows that are tied."""
        own = self._clock.query(connection, self._query.sql, self._options.limits)
        try:
            wider = self._wider(self._cut, own, connection)
        except QueryError:  # for example too many rows, or values that PostgreSQL does not sort, such as JSON
            return replace(answer_of(own, ordered=False), tied=True)
        parts = [Rows(own.columns, tuple(self._cut.part(one.rows))) for one in wider]
        answer = answer_of(own, parts, ordered=is_ordered(self._query), folded=self._folded)
        first, *last = (looks_cut(wider, self._cut, at) for at in self._cut.edges)
        tied = first or is_cut(own, wider, self._cut, folded=self._folded)
        tied = tied or any(self._cuts_tie(inner, connection) for inner in self._inner)
        return replace(answer, tied=tied, repeated=any(last))

    def _cuts_tie(self, inner: Cut, connection: Connection) -> bool:
        """Whether a SELECT within the query chooses among rows that may be tied; False if it is no query of its own."""
        try:
            own = self._clock.query(connection, inner.query.sql, self._options.limits, _PART)
            wider = self._wider(inner, own, connection)
        except QueryError:  # it may need columns of the query around it
            return False
        looks = (looks_cut(wider, inner, at) for at in inner.edges)
        return is_cut(own, wider, inner, folded=self._folded) or any(looks)

    def _wider(self, cut: Cut, own: Rows, connection: Connection) -> list[Rows]:
        """The rows of ``cut.wider`` with ties broken in several ways; none if nothing in it chooses among ties."""
        sqls = self._tie_breaks(cut.wider, len(own.columns))
        return [self._clock.query(connection, sql, self._options.limits, _PART) for sql in sqls]


_PART = 4  # a query that only looks for ties may take this part of the time that is left


def instance_name(number: int) -> str:
    """What a reason calls the database of this number."""
    return f"varied database {number}" if number else "the given database"


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
