"""Judge predictions by execution, inside a worker: first the gold query's answers, then each prediction's results."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, product

from sqlglot import exp

from rlfactory_core.errors import BackendError, ConfigError
from rlfactory_nl2sql.checks.canonical import canonical
from rlfactory_nl2sql.checks.constants import Constant, TableColumn, aggregated, constants
from rlfactory_nl2sql.checks.ordering import is_ordered
from rlfactory_nl2sql.checks.parsing import Query, parse_query
from rlfactory_nl2sql.checks.ties import untie
from rlfactory_nl2sql.comparison.answer import Answer, answer_of
from rlfactory_nl2sql.comparison.compare import Comparison, compare
from rlfactory_nl2sql.comparison.describe import number_of
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, Row, Rows, TableRows
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.instances.characters import CHARACTERS
from rlfactory_nl2sql.instances.links import links_of
from rlfactory_nl2sql.instances.subsample import SHARES, subsample
from rlfactory_nl2sql.instances.vary import vary
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.verification.connections import Connections, Database
from rlfactory_nl2sql.verification.tiebreaks import inner_limits, tie_breaks


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Options of `verifier.SqlVerifier`."""

    comparison: Comparison = field(default_factory=Comparison)
    instances: int = 5  # databases to compare on: the given one and varied ones
    seed: int = 0  # of the varied databases
    limits: QueryLimits = field(default_factory=QueryLimits)  # of a prediction; seconds for all instances
    gold_seconds: float = 30.0  # for the gold query on all instances
    shown: int = 0  # rows of differing results to include in the verdict's data, for display
    confirmed: int = (
        8  # further databases, for the constants of both queries, before a prediction of another form passes
    )

    def __post_init__(self) -> None:
        if self.instances < 1:
            raise ConfigError(f"A prediction is compared on at least 1 instance of its database, not {self.instances}.")
        if not (self.limits.seconds > 0 and self.gold_seconds > 0):
            given = f"{self.limits.seconds} for a prediction, {self.gold_seconds} for a gold query"
            raise ConfigError(f"A query needs more than 0 seconds. Got {given}.")


PREPARE_S = 60.0  # time to connect, and to read and vary a large database
_CELL = 60  # most characters shown of a value
_COLUMNS = 12  # shown of a row
_LOOKED_AT = 1000  # rows of each side, for those to show
_OTHER_SEEDS = (1, 2, 3)  # added to the seed, for more varied databases
_CONFIRMING = 4  # likewise, for those that confirm
_CONFIRM_S = 1.0  # for the gold query on those: they are small, and each prediction may need other ones
_LONGEST = 5_000  # characters of a prediction whose constants are used
_SAMPLED = 5_000  # most rows of each table from which sub-samples are drawn

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gold:
    """The gold query's answers."""

    answers: bytes  # pickled: an `Answer` for each instance, or None if the query fails there
    varied: tuple[bytes, ...]  # the rows of each varied instance, pickled
    notes: tuple[str, ...]  # about instances that are left out
    seconds: float
    evidence: bool  # whether an answer other than the given database's can tell a right prediction from others


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
class _About:
    """What the databases that confirm a prediction depend on."""

    literals: tuple[Constant, ...]
    aggregated: frozenset[TableColumn]
    tables: frozenset[str]  # those that the queries read, and those that they refer to; the others stay empty

    @classmethod
    def of(cls, queries: Sequence[Query], schema: Schema) -> _About:
        literals = dict.fromkeys(constant for query in queries for constant in constants(query, schema))
        columns = [column for query in queries for column in aggregated(query, schema)]
        return cls(tuple(literals), frozenset(columns), frozenset(_read(queries, schema)))


def _read(queries: Sequence[Query], schema: Schema) -> set[str]:
    """All tables, if a query reads a view."""
    named = {table.name.lower() for query in queries for table in query.tree.find_all(exp.Table)}
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
            self.ref, self.options.limits, lambda database: _Answers(self, database, connections).find()
        )


class _Answers:
    """The search for a gold query's answers on the given database, on varied ones, and on more if these say nothing."""

    def __init__(self, job: GoldJob, database: Database, connections: Connections) -> None:
        self._job = job
        self._options = job.options
        self._database = database
        self._connections = connections
        self._schema = database.connection.schema()
        self._query = parse_query(job.gold, job.ref.kind)
        self._clock = _Clock(self._options.gold_seconds)
        self._answers: list[Answer | None] = []
        self._packed: list[bytes] = []
        self._notes: list[str] = []

    def find(self) -> Gold:
        """Raises `QueryError` if the query fails on the given database."""
        varied: list[Connection] = []
        literals = constants(self._query, self._schema)
        try:
            for number in range(1, self._options.instances):
                rows = vary(self._schema, self._database.rows(), literals, self._options.seed, number)
                self._packed.append(pickle.dumps(rows))
                varied.append(self._database.varied(_key(self._job), self._packed[-1]))
        except BackendError as error:
            self._packed = self._packed[: len(varied)]
            self._notes.append(f"only {len(varied) + 1} of {self._options.instances} instances are compared: {error}")
        self._connections.clock(self._clock.left)
        self._answers.append(self._answer(self._database.connection))
        for number, connection in enumerate(varied, 1):
            try:
                self._answers.append(self._answer(connection))
            except QueryError as error:
                self._answers.append(None)
                self._notes.append(f"{_name(number)} is left out, where the gold query fails: {error}")
        if varied and _read([self._query], self._schema) and not self._suffices():
            self._extend(literals)
        answers = pickle.dumps(tuple(self._answers), pickle.HIGHEST_PROTOCOL)
        compared = self._answers[1:] if self._options.instances > 1 else self._answers
        evidence = any(answer is not None and answer.is_evidence for answer in compared)
        return Gold(answers, tuple(self._packed), tuple(self._notes), self._clock.used, evidence)

    def confirm(self, about: _About) -> Iterator[tuple[bytes, Answer]]:
        """Further varied databases, pickled, with the query's answers; those on which it fails are left out.

        There are none for queries that read no table, and none after the query's time.
        """
        for number in range(1, self._options.confirmed + 1):
            if not about.tables or self._clock.left <= 0:
                return
            self._connections.clock(PREPARE_S)  # to vary as well; each query has its own deadline within
            seed = self._options.seed + _CONFIRMING
            data = {name: rows for name, rows in self._database.rows().items() if name in about.tables}
            made = vary(self._schema, data, about.literals, seed, number, aggregated=about.aggregated)
            rows = pickle.dumps(made)
            try:
                connection = self._database.varied(_key(self._job), rows)
                yield rows, self._answer(connection)
            except (BackendError, QueryError):
                continue

    def _suffices(self) -> bool:
        """Whether the varied databases tell a right prediction from others."""
        return self._has_evidence() and len(self._different()) > 1  # a constant has answers that are all equal

    def _has_evidence(self) -> bool:
        varied = [answer for answer in self._answers[1:] if answer is not None]
        firm = sum(answer.is_evidence and not answer.tied for answer in varied)
        return firm >= (2 if any(answer.tied for answer in varied) else 1)  # what hangs on ties is replaced

    def _different(self) -> set[bytes]:
        return {pickle.dumps(answer) for answer in self._answers if answer is not None and not answer.tied}

    def _extend(self, literals: Sequence[Constant]) -> None:
        """Add databases on which the query has an answer, until they suffice or none is left to try."""
        for rows in self._more(literals):
            if self._clock.left < self._options.gold_seconds / 2:
                return
            try:
                made = self._database.connection.instance(rows)
            except BackendError:
                return
            self._connections.clock(self._clock.left)
            try:
                answer = self._answer(made)
            except QueryError:
                continue
            finally:
                made.close()
            helps = not self._has_evidence() or pickle.dumps(answer) not in self._different()
            if answer.is_evidence and not answer.tied and helps:
                self._answers.append(answer)
                self._packed.append(pickle.dumps(rows))
                if self._suffices():
                    return

    def _more(self, literals: Sequence[Constant]) -> Iterator[TableRows]:
        """Varied databases of other seeds, then sub-samples of the given rows."""
        seed, sampled = self._options.seed, self._database.rows()
        for other, number in product(_OTHER_SEEDS, range(1, len(CHARACTERS) + 1)):
            yield vary(self._schema, sampled, literals, seed + other, number)
        read = self._database.connection.read
        rows = {table.name: read(table.name, _SAMPLED) for table in self._schema.tables if not table.view}
        for other, share in product((0, *_OTHER_SEEDS), SHARES):
            yield subsample(self._schema, rows, share, seed + other)

    def _answer(self, connection: Connection) -> Answer:
        how, ordered = self._options.comparison, is_ordered(self._query)
        untied = None if how.fixed else untie(self._query, self._schema)
        if untied is not None:
            try:
                rows = self._run(connection, untied.sql, 2)
                answer = answer_of(rows, ordered=ordered, untied=untied, order=how.order)
                return answer if answer.tied else self._marked(answer, connection, outermost=False)
            except QueryError:  # for example too many rows without the LIMIT: use the query's own rows
                pass
        answer = answer_of(self._run(connection, self._query.sql, 1), ordered=ordered, untied=None, order=how.order)
        return self._marked(answer, connection, outermost=untied is not None and ordered)

    def _marked(self, answer: Answer, connection: Connection, *, outermost: bool) -> Answer:
        """The answer, marked as tied if it depends on how ties within the query are broken."""
        tied = any(self._cuts(inner, connection) for inner in inner_limits(self._query))
        tied = tied or self._varies(connection, outermost=outermost)
        return replace(answer, tied=tied, certain=(), fewest=0)

    def _cuts(self, inner: Query, connection: Connection) -> bool:
        """Whether a SELECT within the query cuts a tie; False if it is no query of its own."""
        untied = untie(inner, self._schema)
        try:
            rows = self._run(connection, untied.sql, 4) if untied else None
        except QueryError:  # it may need columns of the query around it
            return False
        return rows is not None and answer_of(rows, ordered=True, untied=untied).tied

    def _varies(self, connection: Connection, *, outermost: bool) -> bool:
        readings = tie_breaks(self._query, self._schema, outermost=outermost)
        try:
            found = [Counter(map(repr, self._run(connection, sql, 4).rows)) for sql in readings]
        except QueryError:  # no database needs to accept what is not the user's text
            return False
        return any(one != found[0] for one in found)

    def _run(self, connection: Connection, sql: str, part: int) -> Rows:
        """The result of a query that may take this part of the time that is left."""
        return self._clock.query(connection, sql, self._options.limits, self._clock.left / part)


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
        judging = _Judging(self, connections)
        answers: tuple[Answer | None, ...] = connections.decoded(self.found.answers)
        for number, answer in enumerate(answers):
            if answer is not None:
                varied = self.found.varied[number - 1] if number else None
                wrong = judging.wrong(number, answer, self._instance(database, varied))
                if wrong is not None:
                    return wrong
        same = database.once((self.gold, self.prediction, "form"), lambda: self._same_form(database))
        if not (judging.found.evidence or same):
            return judging.outcome(passed=None, reason=judging.found.reason)
        if same or self.options.instances == 1:
            return judging.outcome(passed=True)
        for number, (rows, answer) in enumerate(self._confirming(database, connections), len(answers)):
            wrong = judging.wrong(number, answer, self._instance(database, rows))
            if wrong is not None:
                return wrong
        return judging.outcome(passed=True)

    def _instance(self, database: Database, varied: bytes | None) -> Connection:
        return database.connection if varied is None else database.varied(_key(self), varied)

    def _confirming(self, database: Database, connections: Connections) -> Sequence[tuple[bytes, Answer]]:
        """Varied databases around the constants of both queries, and the gold query's answers there."""
        about = database.once((self.gold, self.prediction, "about"), lambda: self._about(database))
        within = replace(self.options, gold_seconds=min(_CONFIRM_S, self.options.gold_seconds))
        gold = _Answers(GoldJob(self.ref, self.gold, within), database, connections)
        return database.once((self.gold, self.options, about), lambda: list(gold.confirm(about)))

    def _about(self, database: Database) -> _About:
        queries = [parse_query(self.gold, self.ref.kind)]
        if len(self.prediction) <= _LONGEST:
            with suppress(QueryError):  # the database knows more SQL than our parser
                queries.append(parse_query(self.prediction, self.ref.kind))
        return _About.of(queries, database.connection.schema())

    def _same_form(self, database: Database) -> bool:
        schema, kind = database.connection.schema(), self.ref.kind
        try:
            gold, prediction = (canonical(parse_query(sql, kind), schema) for sql in (self.gold, self.prediction))
            return gold == prediction
        except QueryError:
            return False


class _Judging:
    """A prediction on one database after the other."""

    def __init__(self, job: PredictionJob, connections: Connections) -> None:
        self._job, self._connections = job, connections
        self._clock = _Clock(job.options.limits.seconds)
        self.found = _Findings()

    def outcome(self, *, passed: bool | None, reason: str = "") -> Outcome:
        return Outcome(passed, reason, self._clock.used, self.found.compared)

    def wrong(self, number: int, answer: Answer, connection: Connection) -> Outcome | None:
        """The outcome if the prediction fails, or differs from the answer."""
        job, clock = self._job, self._clock
        self._connections.clock(clock.left)
        try:
            rows = clock.query(connection, job.prediction, job.options.limits, clock.left)
        except QueryError as error:
            return failed(f" on {_name(number)}", error, clock.used, self.found.compared)
        self.found.compared += 1
        difference = compare(answer, rows, job.options.comparison)
        if difference is not None and not answer.may_break_ties(rows):
            return self._differing(answer, rows, f"on {_name(number)}: {difference}")
        # The given database is no evidence: a query can hold what was read from it. It is if nothing else is asked.
        if number or job.options.instances == 1:
            self.found.add(answer, equal=difference is None)
        return None

    def _differing(self, answer: Answer, rows: Rows, reason: str) -> Outcome:
        found, shown = self.outcome(passed=False, reason=reason), self._job.options.shown
        if not shown:
            return found
        gold = [_cells(row) for row in islice((row for tie in answer.ties for row in tie.rows), _LOOKED_AT)]
        got = [_cells(row) for row in rows.rows[:_LOOKED_AT]]
        return replace(
            found,
            expected=(_names(answer.columns), *_differing_first(gold, got)[:shown]),
            got=(_names(rows.columns), *_differing_first(got, gold)[:shown]),
        )


@dataclass(slots=True)
class _Findings:
    """What the instances say for a prediction that none speaks against."""

    compared: int = 0
    _firm: bool = False  # equal to an answer that is evidence, and that does not hang on ties
    _tied: bool = False  # equal to one of the answers where several are right
    _unequal: bool = False  # to none of these; perhaps it only treats ties in another way

    def add(self, answer: Answer, *, equal: bool) -> None:
        if answer.tied:
            self._tied = self._tied or (equal and answer.is_evidence)
            self._unequal = self._unequal or not equal
        else:
            self._firm = self._firm or answer.is_evidence

    @property
    def evidence(self) -> bool:
        return self._firm or (self._tied and not self._unequal)

    @property
    def reason(self) -> str:
        """Why a prediction without evidence cannot be verified."""
        if self._tied or self._unequal:
            return "no evidence: the right query's answer depends on how the database breaks ties"
        return (
            f"no evidence: on {number_of(self.compared, 'instance')} of the database the right query gives no rows, or "
            "only 0 and NULL, wherever its data are not the given ones"
        )


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
    return tuple(_cell(value) for value in row[:_COLUMNS])


def _names(columns: Sequence[str]) -> Cells:
    return tuple(name[:_CELL] for name in columns[:_COLUMNS])


def _cell(value: object) -> str:
    text = "NULL" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"
