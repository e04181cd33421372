"""``rlfactory nl2sql``: see why a query counts as right or wrong."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, get_args

import click

from rlfactory_core.cli.output import echo_json
from rlfactory_core.errors import UsageError
from rlfactory_core.types import Verdict
from rlfactory_core.utils.display import printable
from rlfactory_nl2sql.comparison.compare import Comparison, Semantics
from rlfactory_nl2sql.connection import limits_of
from rlfactory_nl2sql.databases.reference import DatabaseRef, parse_reference
from rlfactory_nl2sql.verification.gold import VerifyOptions

_SHOWN = 5  # rows of each result
_WORDS = {
    True: click.style("PASSED", fg="green", bold=True),
    False: click.style("FAILED", fg="red", bold=True),
    None: click.style("UNKNOWN", fg="yellow", bold=True),
}


@click.group("nl2sql")
def nl2sql() -> None:
    """Text to SQL: verify queries."""


@nl2sql.command()
@click.option("--db", required=True, help="A SQLite file, or a URL: postgresql://user:${PGPASSWORD}@host/name.")
@click.option("--gold", required=True, help="The right query: SQL, @FILE, or - for standard input.")
@click.option("--pred", required=True, help="The query to judge, likewise.")
@click.option("--semantics", default="multiset", show_default=True, type=click.Choice(get_args(Semantics)))
@click.option(
    "--tolerance", default=1e-9, show_default=True, type=click.FloatRange(0, 0.1), help="Of numbers, relative."
)
@click.option("--instances", default=5, show_default=True, help="Databases: the given one and varied ones.")
@click.option("--seed", default=0, show_default=True, help="Of the varied ones.")
@click.option("--seconds", default=5.0, show_default=True, help="For the query to judge, on all instances together.")
@click.option("--max-rows", default=10_000, show_default=True, type=click.IntRange(1), help="Limit of a result's rows.")
@click.option("--gold-seconds", default=30.0, show_default=True, help="For the right query, likewise.")
@click.option("--json", "as_json", is_flag=True, help="As a JSON object: passed (true, false, null), reasons, timings.")
def verify(db: str, gold: str, pred: str, seconds: float, max_rows: int, as_json: bool, **options: Any) -> None:
    """Judge a query by execution, with reasons.

    Both queries run read-only on the database and on varied instances of it. The exit code is 0 for any verdict, and 2
    if the input cannot be used.
    """
    comparison = Comparison(*(options.pop(name) for name in ("semantics", "tolerance")))
    verify_options = VerifyOptions(comparison, limits=limits_of(seconds, max_rows), shown=_SHOWN, **options)
    if gold == pred == "-":
        raise UsageError("Only one of --gold and --pred can be read from standard input. Give the other as @FILE.")
    verdict = asyncio.run(_verify(parse_reference(db), _read(gold), _read(pred), verify_options))
    if as_json:
        echo_json({"passed": verdict.passed, "reasons": verdict.reasons, **verdict.data})
    else:
        click.echo(_for_people(verdict))


async def _verify(ref: DatabaseRef, gold: str, prediction: str, options: VerifyOptions) -> Verdict:
    from rlfactory_nl2sql.verification.pool import WorkerPool
    from rlfactory_nl2sql.verification.verifier import SqlVerifier

    pool = WorkerPool(workers=1)
    try:
        return await SqlVerifier(pool, options).verify(ref, gold, prediction)
    finally:
        await pool.close()


def _read(sql: str) -> str:
    if sql == "-":
        return sys.stdin.read()
    if not sql.startswith("@"):
        return sql
    try:
        return Path(sql[1:]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"No SQL can be read from the file {sql[1:]}: {error}") from error


def _for_people(verdict: Verdict) -> str:
    data = verdict.data
    count = data["instances"]
    parts = [_WORDS[verdict.passed], f" {data['semantics']}, compared on {count} instance{'s'[count == 1 :]}"]
    for who in ("gold", "prediction"):
        if f"{who}_seconds" in data:
            parts[-1] += f", {who} {data[f'{who}_seconds'] * 1e3:.1f} ms"
    lines = [" ".join(parts), *(f"  {printable(reason)}" for reason in verdict.reasons)]
    for name in ("expected", "got"):
        if name in data:
            cells = [[printable(cell.replace("\n", "\\n")) for cell in row] for row in data[name]]
            widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
            lines += ["", f"  {name}, differing rows first"]
            lines += [f"    {' | '.join(map(str.ljust, row, widths))}".rstrip() for row in cells]
    return "\n".join(lines)
