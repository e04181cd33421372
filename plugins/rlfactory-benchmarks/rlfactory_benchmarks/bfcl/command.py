"""``rlfactory bfcl score``: the leaderboard's verdicts on outputs that its own harness has stored."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from rlfactory_core.cli.output import echo
from rlfactory_core.errors import DataError, UsageError

_PATTERN = "BFCL_v4_*_result.json"


@click.group("bfcl")
def bfcl() -> None:
    """The function calling leaderboard: score stored outputs."""


@bfcl.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--form", type=click.Choice(["text", "functions"]), help="Of the outputs. By default each file's own.")
def score(files: Sequence[Path], form: str | None) -> None:
    """Score result files of bfcl-eval, or all in a folder, such as result/MODEL.

    The verdicts are those of the package's own code. In a file with calls as data the outputs are those of a model with
    function calling, else texts, whose arithmetic is evaluated as Python.
    """
    from rlfactory_benchmarks.bfcl.data import categories
    from rlfactory_benchmarks.bfcl.official import official
    from rlfactory_benchmarks.bfcl.table import leaderboard
    from rlfactory_benchmarks.bfcl.verdicts import check_output
    from rlfactory_benchmarks.packages import version

    category_of = official().runner.extract_test_category_from_id
    found: defaultdict[str, list[float]] = defaultdict(list)
    for path in files:
        paths = sorted(path.rglob(_PATTERN)) if path.is_dir() else [path]
        if not paths:
            raise UsageError(f"{path} has no file {_PATTERN}. Give the folder that the harness wrote, or result files.")
        for each in paths:
            rows = list(_rows(each))
            if unknown := {category_of(row["id"]) for row in rows}.difference(categories()):
                echo(f"{each}: not scored, because of questions of {', '.join(sorted(unknown))}", err=True)
                continue
            kind = form or ("functions" if any(_has_calls(row["result"]) for row in rows) else "text")
            echo(f"{each}: {len(rows)} outputs, form {kind}", err=True)
            for row in rows:
                right = check_output(row["id"], row["result"], form=kind).valid  # type: ignore[arg-type]
                found[category_of(row["id"])].append(float(right))
    table = leaderboard("", found, [f"bfcl-eval {version('bfcl-eval')}, its own checkers"])
    for cells in (table.columns, *table.texts):
        echo(f"{cells[0]:28}" + "".join(f"{cell:>10}" for cell in cells[1:]))
    echo("\n".join(table.notes))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("id"), str) or "result" not in row:
            raise DataError(f'{path}, line {number}: expected {{"id": …, "result": …}} as JSON, got {line[:80]!r}.')
        yield row


def _has_calls(result: Any) -> bool:
    """Whether an output has calls as data, at any depth of its turns and steps."""
    return isinstance(result, list) and any(isinstance(each, dict) or _has_calls(each) for each in result)
