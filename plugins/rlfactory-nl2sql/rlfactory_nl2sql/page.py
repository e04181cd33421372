"""The section of a trajectory's page: the queries, why the verdict fell so, both results, and the schema."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rlfactory_core import Sample, Trajectory
from rlfactory_core.errors import RlfactoryError
from rlfactory_core.reporting import Section
from rlfactory_core.rewards import accepted_answers
from rlfactory_nl2sql.formatting import table_line
from rlfactory_nl2sql.rewards.answers import predicted_sql
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.task import Nl2SqlTask
from rlfactory_nl2sql.verification.jobs import Schemas

_TITLE = "The query"
_RESULTS = {"expected": "right", "got": "answered"}  # in a verdict's data: the columns' names and some rows


def verdict(trajectory: Trajectory, config: Mapping[str, Any]) -> Section | None:
    """None if no query is judged, because the trajectory has no score or its sample no answer."""
    if trajectory.score is None or trajectory.sample.answer is None:
        return None
    sql = predicted_sql(trajectory)
    queries = [("right", each) for each in accepted_answers(trajectory.sample)] + [("answered", sql or "no query")]
    judged = [each for each in trajectory.score.verdicts.values() if "semantics" in each.data]
    why = "; ".join(reason for each in judged for reason in each.reasons)
    parts = [Section.of_table(_TITLE, ("query", "SQL"), queries, why)]
    parts += [_results(each.data) for each in judged if all(each.data.get(name) for name in _RESULTS)]
    html = "".join(part.html for part in parts if part is not None)
    return Section(_TITLE, f"{html}{_schema(trajectory.sample, config)}")


def _results(data: Mapping[str, Any]) -> Section:
    """Both results side by side, the rows in which they differ first."""
    columns = [f"<div><h3>{title}</h3>{_rows(data[name])}</div>" for name, title in _RESULTS.items()]
    return Section(_TITLE, f'<div class="beside">{"".join(columns)}</div>')


def _rows(cells: Sequence[Sequence[str]]) -> str:
    names, *rows = cells
    table = Section.of_table(_TITLE, names, rows)
    return table.html if table is not None else f'<p class="note">no rows of {escape(", ".join(names))}</p>'


def _schema(sample: Sample, config: Mapping[str, Any]) -> str:
    """Read from the database, if it is on this machine or answers."""
    try:
        schema = asyncio.run(_read_schema(sample, config))
    except RlfactoryError as error:
        return f'<p class="note">The schema cannot be read: {escape(str(error))}</p>'
    lines = "\n".join(table_line(table) for table in schema.tables)
    return f"<h3>schema</h3><pre>{escape(lines)}</pre>"


async def _read_schema(sample: Sample, config: Mapping[str, Any]) -> Schema:
    task = Nl2SqlTask(config.get("task"), int(config.get("seed") or 0))
    try:
        return await Schemas(task.pool).get(task.reference(sample))
    finally:
        await task.close()
