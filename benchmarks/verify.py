"""What verdicts on SQL cost: per second, beside the plainest executor, and under queries that never end.

    python benchmarks/verify.py [chinook.sqlite]      # writes benchmarks/results/verify.md

The plain executor runs one query after another in this process with sqlite3 and compares rows with a Counter: no
limits, no protection of the file, no order, no tolerance. It is given the same instances, and the gold queries' rows,
beforehand.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from machine import describe, publish, sized
from rlfactory_nl2sql.checks.constants import constants
from rlfactory_nl2sql.checks.parsing import parse_query
from rlfactory_nl2sql.connection import QueryLimits
from rlfactory_nl2sql.databases.reference import DatabaseRef, parse_reference
from rlfactory_nl2sql.instances.vary import vary
from rlfactory_nl2sql.verification.connections import Database
from rlfactory_nl2sql.verification.gold import VerifyOptions
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.verifier import SqlVerifier

from rlfactory_core.types import Verdict

RESULTS = Path(__file__).parent / "results" / "verify.md"
PREDICTIONS, GROUP, INSTANCES = sized(1000, 40), 8, 3  # of each question, as many predictions as attempts in a group
BATCH = 32  # questions
DEADLINE_S, HANGING = 1.0, 0.05
IN_FLIGHT = (16, 64)
OPTIONS = VerifyOptions(instances=INSTANCES, limits=QueryLimits(seconds=DEADLINE_S))

SCHEMA = """
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL, age INTEGER);
CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, price REAL NOT NULL);
CREATE TABLE purchase (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer (id),
    product_id INTEGER NOT NULL REFERENCES product (id), amount INTEGER NOT NULL, day TEXT NOT NULL
);
"""
CITIES = ("Oslo", "Lyon", "Turin", "Cork", "Gdansk", "Porto", "Ghent", "Graz")
KINDS = ("book", "lamp", "chair", "pen", "bag")
# A question's query, another way to write it, and one that is wrong; "{}" is a constant.
SHOP = (
    ("SELECT name FROM customer WHERE age > {}", "SELECT c.name FROM customer AS c WHERE {} < c.age",
     "SELECT name FROM customer WHERE age >= {}"),
    ("SELECT city, count(*) FROM customer WHERE age < {} GROUP BY city",
     "SELECT city, sum(1) FROM customer WHERE NOT age >= {} GROUP BY 1",
     "SELECT city, count(DISTINCT name) FROM customer WHERE age < {} GROUP BY city"),
    ("SELECT c.name, p.amount FROM customer c JOIN purchase p ON p.customer_id = c.id WHERE p.amount > {}",
     "SELECT c.name, p.amount FROM purchase p, customer c WHERE p.customer_id = c.id AND p.amount > {}",
     "SELECT c.name, p.amount FROM customer c LEFT JOIN purchase p ON p.customer_id = c.id WHERE p.amount <> {}"),
    ("SELECT kind, avg(price) FROM product WHERE price > {} GROUP BY kind ORDER BY avg(price) DESC",
     "SELECT kind, sum(price) / count(*) AS a FROM product WHERE price > {} GROUP BY kind ORDER BY a DESC",
     "SELECT kind, avg(price) FROM product WHERE price > {} GROUP BY kind ORDER BY avg(price)"),
    ("SELECT name FROM product WHERE id IN (SELECT product_id FROM purchase WHERE amount = {})",
     "SELECT name FROM product p WHERE EXISTS (SELECT 1 FROM purchase u WHERE u.product_id = p.id AND u.amount = {})",
     "SELECT p.name FROM product p JOIN purchase u ON u.product_id = p.id WHERE u.amount = {}"),
)  # fmt: skip
CHINOOK = (
    ("SELECT Name FROM Track WHERE Milliseconds > {}000",
     "SELECT t.Name FROM Track t WHERE NOT t.Milliseconds <= {}000",
     "SELECT Name FROM Track WHERE Milliseconds > {}001"),
    ("SELECT Title, count(*) FROM Album JOIN Track USING (AlbumId) WHERE Bytes > {}00000 GROUP BY AlbumId",
     "SELECT Title, sum(1) FROM Album a, Track t WHERE a.AlbumId = t.AlbumId AND {}00000 < Bytes GROUP BY a.AlbumId",
     "SELECT Title, count(*) FROM Album JOIN Track USING (AlbumId) WHERE Bytes > {}00000 GROUP BY Title, UnitPrice"),
    ("SELECT BillingCountry, sum(Total) FROM Invoice WHERE Total > {} GROUP BY BillingCountry",
     "SELECT BillingCountry, sum(Total) FROM Invoice WHERE {} < Total GROUP BY 1",
     "SELECT BillingCountry, sum(DISTINCT Total) FROM Invoice WHERE Total > {} GROUP BY BillingCountry"),
    ("SELECT Name FROM Artist WHERE ArtistId IN (SELECT ArtistId FROM Album) AND ArtistId < {}",
     "SELECT Name FROM Artist r WHERE EXISTS (SELECT 1 FROM Album a WHERE a.ArtistId = r.ArtistId) AND ArtistId < {}",
     "SELECT r.Name FROM Artist r JOIN Album a ON a.ArtistId = r.ArtistId WHERE r.ArtistId < {}"),
)  # fmt: skip
FOREVER = (
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r ORDER BY n DESC",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n * 3 % 1000003 FROM r) SELECT group_concat(n) FROM r",
)


@dataclass(frozen=True, slots=True)
class Case:
    gold: str
    prediction: str


def shop(path: Path) -> Path:
    rng = random.Random(0)
    connection = sqlite3.connect(path)
    with connection:
        connection.executescript(SCHEMA + "CREATE INDEX bought ON purchase (product_id);")
        people = [(f"name {rng.randrange(900)}", rng.choice(CITIES), rng.randrange(18, 90)) for _ in range(1000)]
        things = [(f"thing {number}", rng.choice(KINDS), round(rng.uniform(1, 99), 2)) for number in range(200)]
        buys = [
            (rng.randrange(1, 1001), rng.randrange(1, 201), rng.randrange(1, 60), f"2024-{rng.randrange(1, 13):02}-01")
            for _ in range(2000)
        ]
        connection.executemany("INSERT INTO customer (name, city, age) VALUES (?, ?, ?)", people)
        connection.executemany("INSERT INTO product (name, kind, price) VALUES (?, ?, ?)", things)
        connection.executemany("INSERT INTO purchase (customer_id, product_id, amount, day) VALUES (?, ?, ?, ?)", buys)
    connection.close()
    return path


def cases(templates: Sequence[tuple[str, str, str]]) -> list[Case]:
    """Half of the predictions right; the attempts at a batch of questions come in a random order."""
    made = []
    for question in range(PREDICTIONS // GROUP):
        gold, right, wrong = (
            text.replace("{}", str(20 + question // 4)) for text in templates[question % len(templates)]
        )
        made += [Case(gold, right), Case(gold, wrong)] * (GROUP // 2)
    rng, size = random.Random(1), BATCH * GROUP
    batches = [made[start : start + size] for start in range(0, len(made), size)]
    return [case for batch in batches for case in rng.sample(batch, len(batch))]


def reworded(some: Sequence[Case], occasion: str, *, alike: bool = False) -> list[Case]:
    """The same predictions in texts that have not been judged before.

    Args:
        alike: whether a question's equal predictions stay equal.
    """
    return [
        Case(case.gold, f"{case.prediction} /* {occasion} {'' if alike else at} */") for at, case in enumerate(some)
    ]


def with_hanging(some: Sequence[Case]) -> list[Case]:
    rng = random.Random(2)
    chosen = set(rng.sample(range(len(some)), round(HANGING * len(some))))
    return [Case(case.gold, rng.choice(FOREVER)) if at in chosen else case for at, case in enumerate(some)]


class Plain:
    """The plain executor."""

    def __init__(self, ref: DatabaseRef, some: Sequence[Case]) -> None:
        given = sqlite3.connect(ref.location)
        ours = Database(ref, QueryLimits())
        schema = ours.connection.schema()
        made = [sql for (sql,) in given.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
        self._golds: dict[str, list[tuple[sqlite3.Connection, Counter[tuple[object, ...]]]]] = {}
        for gold in {case.gold for case in some}:
            databases = [given]
            literals = constants(parse_query(gold, ref.kind), schema)
            for number in range(1, INSTANCES):
                copy = sqlite3.connect(":memory:")
                for sql in made:
                    copy.execute(sql)
                for table, rows in vary(schema, ours.rows, literals, OPTIONS.seed, number).items():
                    if rows:
                        marks = ", ".join("?" * len(rows[0]))
                        copy.executemany(f'INSERT OR IGNORE INTO "{table}" VALUES ({marks})', rows)
                databases.append(copy)
            self._golds[gold] = [(one, Counter(one.execute(gold).fetchall())) for one in databases]

    def verdict(self, case: Case) -> bool:
        return all(
            Counter(database.execute(case.prediction).fetchall()) == rows for database, rows in self._golds[case.gold]
        )


@dataclass(frozen=True, slots=True)
class Batch:
    seconds: float
    times: tuple[float, ...]  # from asking to the verdict
    verdicts: tuple[Verdict, ...]

    @property
    def p50(self) -> float:
        return statistics.median(self.times)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.times, n=100)[98]


async def ask(verifier: SqlVerifier, ref: DatabaseRef, some: Sequence[Case], in_flight: int) -> Batch:
    free = asyncio.Semaphore(in_flight)

    async def one(case: Case) -> tuple[float, Verdict]:
        async with free:
            began = time.perf_counter()
            verdict = await verifier.verify(ref, case.gold, case.prediction)
            return time.perf_counter() - began, verdict

    began = time.perf_counter()
    done = await asyncio.gather(*map(one, some))
    seconds = time.perf_counter() - began
    return Batch(seconds, tuple(each for each, _ in done), tuple(verdict for _, verdict in done))


async def stall(stop: asyncio.Event) -> float:
    """The longest time in seconds for which the event loop did not come round."""
    longest = 0.0
    while not stop.is_set():
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        longest = max(longest, time.perf_counter() - began - 0.001)
    return longest


async def measured(name: str, ref: DatabaseRef, some: Sequence[Case]) -> tuple[list[str], list[str]]:
    """Rows of the table of speeds, and of the one with hanging queries."""
    plain = Plain(ref, some)
    began = time.perf_counter()
    expected = [plain.verdict(case) for case in some]
    sequential = time.perf_counter() - began
    speeds, hangs = [f"| {name}: plain sequential executor | {len(some) / sequential:.0f} | | |"], []
    for confirmed in (OPTIONS.confirmed, 0):
        kind = f"{name}, {confirmed} to confirm"
        pool = WorkerPool()
        verifier = SqlVerifier(pool, replace(OPTIONS, confirmed=confirmed))
        occasions = {
            "first time": some,
            "again": reworded(some, "again", alike=True),
            "again, no two alike": reworded(some, "again"),
            "again, the same texts": some,
        }
        for text, asked in occasions.items():
            stop = asyncio.Event()
            watching = asyncio.ensure_future(stall(stop))
            batch = await ask(verifier, ref, asked, 64)
            stop.set()
            same = sum(verdict.passed is want for verdict, want in zip(batch.verdicts, expected, strict=True))
            held_up = await watching
            speeds.append(f"| {kind}: {text} | {len(some) / batch.seconds:.0f} | {same} | {held_up * 1e3:.0f} ms |")
        for in_flight in IN_FLIGHT:
            batch = await ask(verifier, ref, with_hanging(reworded(some, f"{in_flight} in flight")), in_flight)
            late = sum(verdict.data.get("failure") == "deadline" for verdict in batch.verdicts)
            bar = "met" if batch.p99 < DEADLINE_S * 1.1 else "missed"
            hangs.append(
                f"| {kind}, {in_flight} in flight | {late} | {batch.p50 * 1e3:.0f} ms | {batch.p99:.2f} s | {bar} | "
                f"{batch.seconds:.1f} s |"
            )
        await pool.close()
    return speeds, hangs


def main() -> None:
    speeds, hangs = [], []
    with tempfile.TemporaryDirectory() as folder:
        sources = {"a shop": (parse_reference(shop(Path(folder) / "shop.sqlite")), cases(SHOP))}
        if len(sys.argv) > 1:
            sources["Chinook"] = (parse_reference(sys.argv[1]), cases(CHINOOK))
        for name, (ref, some) in sources.items():
            more_speeds, more_hangs = asyncio.run(measured(name, ref, some))
            speeds += more_speeds
            hangs += more_hangs
    text = f"""# Verdicts on SQL

`python benchmarks/verify.py chinook.sqlite`: {PREDICTIONS:,} predictions, {GROUP} of each question, half of them right,
in batches of {BATCH} questions, on {INSTANCES} instances of the database each, 64 in flight. The first time, the gold
queries' answers are found and the varied instances made, which the plain executor is given beforehand. It has neither
limits nor protection, and takes rows in any order, so that it finds fewer faults. A text is judged once for a question,
and a question's {GROUP} predictions are {GROUP // 2} times the same right text and {GROUP // 2} times the same wrong
one. Again, they have a comment that makes them other texts: "again", a question's equal predictions stay equal, as
attempts in a group often are; with "no two alike", each is judged by itself. "To confirm" are the further databases on
which a prediction runs before it is accepted: as many as by default, or none, so that it runs on {INSTANCES} and no
more.

| | verdicts a second | equal to the plain one's | the event loop was held up for at most |
|---|---|---|---|
{chr(10).join(speeds)}

The same with {HANGING:.0%} of the predictions never ending, and a deadline of {DEADLINE_S:g} s for each. The bar: p99
of the time from asking to the verdict is below the deadline + 10 %.

| | late | p50 | p99 | bar | whole batch |
|---|---|---|---|---|---|
{chr(10).join(hangs)}

Machine: {describe("sqlglot")}, SQLite {sqlite3.sqlite_version}.
"""
    publish(RESULTS, text)


if __name__ == "__main__":
    main()
