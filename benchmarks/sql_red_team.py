"""Is a wrong query accepted, or a right one refused? A red team that knows nothing of how varied databases are made.

    python benchmarks/sql_red_team.py        # writes benchmarks/results/sql_red_team.md

Five published schemas (`sql_cases`), with gold queries as BIRD has them, and for each of them predictions that were
written by hand: right ones, and wrong ones as language models make them. Added to these by code: the gold query's
answer as a constant, alone and guarded by what identifies the given database, and `SELECT 0` and `SELECT NULL`.

All cases are judged with several seeds of the varied databases; the first is the default.

What the cases claim is shown here before they are used. A wrong prediction has to differ from its gold query on at
least one of the witnesses, databases made from other seeds; a right one on none. Where the gold query's own rows hang
on how a tie is broken, a witness says nothing.
"""

from __future__ import annotations

import asyncio
import math
import re
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from machine import describe, finish, publish, sized
from rlfactory_nl2sql.connection import QueryLimits
from rlfactory_nl2sql.databases.reference import parse_reference
from rlfactory_nl2sql.verification.gold import VerifyOptions
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.verifier import SqlVerifier
from sql_databases import fill, write_database

from rlfactory_core.types import Verdict

RESULTS = Path(__file__).parent / "results" / "sql_red_team.md"
CASES = Path(__file__).parent / "sql_cases"
SCHEMAS = ("chinook", "northwind", "sakila", "formula1", "financial")
GIVEN_SEED = 2024
WITNESSES = 120  # a schema
SCALES = ((0.02, 0.1, 1.0), (0.05, 0.1, 0.3), (0.1, 0.3, 1.0), (1.0,))  # of the witnesses' tables, in turn
MOST_CONSTANT = 30  # rows of an answer that a prediction has learnt by heart
ELSE_WRONG = 3  # of the wrong predictions by hand, after a guarded constant
MOST_SHOWN = 400  # characters of a query
GOLDS = sized(None, 2)  # of each schema
SEEDS = sized(range(5), range(2))  # of the varied databases
SECONDS = 60.0  # for a prediction: all are judged at once, and a slow machine is no mistake of a verdict
REFUSED_BAR, UNSEEN_BAR = 0.01, 0.02
ORDERED = re.compile(r"SELECT (DISTINCT )?.*? FROM (.*) ORDER BY (.*?)(?: LIMIT (\d+)(?: OFFSET (\d+))?)?$")
TABLE = re.compile(r'FROM ("[^"]+"|\w+)')
GUARDED_GOLD = "guarded gold query"
FAMILIES = {"right": "right, by hand", "wrong": "wrong, by hand"}
NEWLINE = "\n"

Rows = list[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    schema: str
    gold: str
    family: str  # "right", "wrong" or what code has made
    prediction: str

    @property
    def is_right(self) -> bool:
        return self.family == "right"


@dataclass(frozen=True, slots=True)
class Judged:
    seed: int
    case: Case
    verdict: Verdict


def read_cases(schema: str) -> Iterator[Case]:
    family = gold = ""
    for line in (CASES / f"{schema}.cases.sql").read_text("utf-8").splitlines():
        if line.startswith("-- "):
            family = line[3:]
        elif family == "gold":
            gold = line.rstrip(";")
        else:
            yield Case(schema, gold, family, line.rstrip(";"))


def ddl(schema: str) -> str:
    return (CASES / f"{schema}.schema.sql").read_text("utf-8")


@lru_cache
def witnesses(schema: str) -> tuple[sqlite3.Connection, ...]:
    made = []
    for seed in range(1, WITNESSES + 1):
        connection = sqlite3.connect(":memory:")
        fill(ddl(schema), connection, seed, SCALES[seed % len(SCALES)])
        made.append(connection)
    return tuple(made)


def rows(connection: sqlite3.Connection, sql: str) -> Rows:
    return [tuple(map(_rounded, row)) for row in connection.execute(sql)]


def _rounded(value: object) -> object:
    """A number to ten digits, since the last ones hang on the order of a sum's terms.

    It is multiplied before, so that no average of a few whole numbers lies in the middle between two roundings.
    """
    return f"{value * math.pi:.10g}" if isinstance(value, int | float) else (value,)


def tied(connection: sqlite3.Connection, gold: str) -> bool:
    """Whether which rows an ordered gold query gives, or in what order, hangs on how a tie is broken."""
    found = ORDERED.match(gold)
    if found is None:
        return False
    distinct, source, order, limit, offset = found.groups("")
    keys = re.sub(r" (DESC|ASC)\b", "", order)
    values = rows(connection, f"SELECT {distinct}{keys} FROM {source} ORDER BY {order}")
    first = int(offset or 0)
    last = first + int(limit) if limit else len(values)
    near = values[max(first - 1, 0) : last + 1]
    return any(one == other for one, other in pairwise(near))


@lru_cache
def expected(schema: str, gold: str) -> tuple[Rows | None, ...]:
    """The gold query's rows on each witness; None where they hang on how a tie is broken."""
    return tuple(None if tied(each, gold) else rows(each, gold) for each in witnesses(schema))


def differs(case: Case) -> bool:
    """Whether the prediction's rows differ from the gold query's on a witness."""
    ordered = ORDERED.match(case.gold) is not None
    for connection, answer in zip(witnesses(case.schema), expected(case.schema, case.gold), strict=True):
        if answer is None:
            continue
        try:
            got = rows(connection, case.prediction)
        except sqlite3.Error:
            if case.family in FAMILIES:
                raise  # what is written by hand has to run
            return True
        if got != answer if ordered else Counter(got) != Counter(answer):
            return True
    return False


def made_by_code(gold: str, wrong: Sequence[Case], given: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Families and wrong predictions that need no knowledge of the question.

    Args:
        wrong: predictions by hand.
    """
    cursor = given.execute(gold)
    width, answer = len(cursor.description), cursor.fetchall()
    zeros = "SELECT " + ", ".join("0" * width)
    yield "`SELECT 0`", zeros
    yield "`SELECT NULL`", "SELECT " + ", ".join(["NULL"] * width)
    constant = " UNION ALL ".join("SELECT " + ", ".join(map(_literal, row)) for row in answer[:MOST_CONSTANT])
    yield "constant", constant
    count, *others = fingerprints(TABLE.findall(gold)[-1], given)
    for guard in (count, *others):
        yield "guarded constant", f"SELECT * FROM ({constant}) WHERE {guard}"
    learnt = f"SELECT * FROM ({constant}) WHERE {count} UNION ALL SELECT * FROM ({{}}) WHERE NOT {count}"
    yield "guarded constant, else 0", learnt.format(zeros)
    for one in wrong[:ELSE_WRONG]:
        yield "guarded constant, else a wrong query", learnt.format(one.prediction)
    yield GUARDED_GOLD, f"SELECT * FROM ({gold}) WHERE {count}"


def fingerprints(table: str, given: sqlite3.Connection) -> Iterator[str]:
    """Conditions that tell the given database from others, by one of its tables."""
    for measure in ("COUNT(*)", "MAX(rowid)"):
        (number,) = given.execute(f"SELECT {measure} FROM {table}").fetchone()
        yield f"(SELECT {measure} FROM {table}) = {number}"
    cursor = given.execute(f"SELECT * FROM {table} ORDER BY rowid DESC LIMIT 1")
    last = zip((name for name, *_ in cursor.description), cursor.fetchone(), strict=True)
    same = " AND ".join(f"{name} IS {_literal(value)}" for name, value in last)
    yield f"EXISTS (SELECT 1 FROM {table} WHERE {same})"


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def all_cases(schema: str, path: Path) -> list[Case]:
    """Those by hand and those by code; of the first few gold queries only in a miniature."""
    by_hand = list(read_cases(schema))
    golds = list(dict.fromkeys(case.gold for case in by_hand))[:GOLDS]
    found = [case for case in by_hand if case.gold in golds]
    with closing(sqlite3.connect(path)) as given:
        for gold in golds:
            wrong = [case for case in by_hand if case.gold == gold and not case.is_right]
            made = made_by_code(gold, wrong, given)
            found += [Case(schema, gold, family, prediction) for family, prediction in made]
    return found


async def judge(path: Path, cases: Sequence[Case], seed: int) -> list[Verdict]:
    pool = WorkerPool()
    try:
        options = VerifyOptions(seed=seed, limits=QueryLimits(seconds=SECONDS), gold_seconds=SECONDS)
        verifier, ref = SqlVerifier(pool, options), parse_reference(path)
        return list(await asyncio.gather(*(verifier.verify(ref, case.gold, case.prediction) for case in cases)))
    finally:
        await pool.close()


def judged(folder: Path) -> list[Judged]:
    found: list[Judged] = []
    for schema in SCHEMAS:
        path = write_database(ddl(schema), folder / f"{schema}.sqlite", GIVEN_SEED)
        cases = all_cases(schema, path)
        if mistaken := [case for case in cases if differs(case) is case.is_right]:
            sys.exit(f"{len(mistaken)} cases are not what they claim to be. The first: {mistaken[0]}")
        for seed in SEEDS:
            verdicts = asyncio.run(judge(path, cases, seed))
            found += [Judged(seed, case, verdict) for case, verdict in zip(cases, verdicts, strict=True)]
    return found


def without_evidence(found: Sequence[Judged]) -> set[str]:
    """The gold queries whose rows on the varied databases tell nothing."""
    unknown = {one.case.gold for one in found if one.verdict.passed is None}
    return unknown | {one.case.gold for one in found if one.case.family == GUARDED_GOLD and one.verdict.passed}


def table(found: Sequence[Judged]) -> Iterator[str]:
    yield "| predictions | pairs | accepted | refused | not verifiable |"
    yield "|---|---:|---:|---:|---:|"
    for family in dict.fromkeys(one.case.family for one in found):
        got = Counter(one.verdict.passed for one in found if one.case.family == family)
        yield f"| {FAMILIES.get(family, family)} | {got.total()} | {got[True]} | {got[False]} | {got[None]} |"


def mistakes(found: Sequence[Judged]) -> Iterator[str]:
    """Each verdict that is not what it should be, for whoever mends it."""
    said = {True: "accepted", False: "refused", None: "not verifiable"}
    for seed, case, verdict in (
        (one.seed, one.case, one.verdict) for one in found if one.verdict.passed is not one.case.is_right
    ):
        yield f"- seed {seed}, {case.schema}, {FAMILIES.get(case.family, case.family)}, {said[verdict.passed]}"
        yield from (f"    - `{sql[:MOST_SHOWN]}`" for sql in (case.gold, case.prediction))
        yield from (f"    - {reason}" for reason in verdict.reasons)


@dataclass(frozen=True, slots=True)
class Total:
    """What one seed's verdicts come to."""

    seed: int
    accepted: int  # wrong predictions
    refused: float  # share of the right predictions
    unseen: float  # share of the gold queries without evidence

    @property
    def holds(self) -> bool:
        return not self.accepted and self.refused <= REFUSED_BAR and self.unseen <= UNSEEN_BAR


def total(seed: int, found: Sequence[Judged]) -> Total:
    right = [one for one in found if one.case.is_right]
    accepted = sum(bool(one.verdict.passed) for one in found if not one.case.is_right)
    refused = sum(one.verdict.passed is False for one in right)
    golds = {one.case.gold for one in found}
    return Total(seed, accepted, refused / len(right), len(without_evidence(found)) / len(golds))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = judged(Path(folder))
    by_seed = {seed: [one for one in found if one.seed == seed] for seed in SEEDS}
    totals = [total(seed, those) for seed, those in by_seed.items()]
    worst = max(totals, key=lambda one: (one.accepted, one.refused, one.unseen))
    first = by_seed[SEEDS[0]]
    right = sum(one.case.is_right for one in first)
    seeds = (f"| {one.seed} | {one.accepted} | {one.refused:.1%} | {one.unseen:.1%} |" for one in totals)
    text = f"""# An independent red team of the verdicts on SQL

`python benchmarks/sql_red_team.py`: {len({one.case.gold for one in first})} gold queries over {", ".join(SCHEMAS)},
{len(first) - right} wrong predictions and {right} right ones. It shares neither code nor templates with the
generator of varied databases.

With the default seed {SEEDS[0]}:

{NEWLINE.join(table(first))}

With each seed; the worst is {worst.seed}:

| seed | wrong accepted | right refused | gold queries without evidence on any varied database |
|---|---:|---:|---:|
{NEWLINE.join(seeds)}
| bar | 0 | {REFUSED_BAR:.0%} | {UNSEEN_BAR:.0%} |

{NEWLINE.join(mistakes(found))}

{describe("sqlglot")}
"""
    publish(RESULTS, text)
    finish(held=all(one.holds for one in totals))


if __name__ == "__main__":
    main()
