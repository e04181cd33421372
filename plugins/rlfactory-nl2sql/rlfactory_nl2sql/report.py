"""Sections about the model's queries: the verdicts in a run's report, and one verdict on a trajectory's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rlfactory_core import Trajectory, Verdict
from rlfactory_core.reporting import ReportSection, RunData
from rlfactory_core.rewards import accepted_answers
from rlfactory_nl2sql.rewards.answers import NO_ANSWER, predicted_sql

REWARD = "execution"
_TITLE = "The query"
_RESULTS = {"expected": "right", "got": "answered"}  # in a verdict's data: the columns' names and some rows


def answers(run: RunData) -> ReportSection | None:
    """The verdicts of the held-out evaluations; None if no reward verified by execution."""
    rewards = run.config.get("rewards")
    if rewards is None:  # the task's own
        names = [REWARD] if REWARD in run.rewards else []
    else:
        labelled = (each for each in rewards if str(each["name"]).rpartition(":")[2] == REWARD)
        names = [str(each.get("label") or each["name"]) for each in labelled]
    if not names:
        return None
    before, after = (_kinds(run, f"eval-{when}", names[0]) for when in ("before", "after"))
    rows = [
        (kind, *(f"{found[kind] / found.total():.0%} ({found[kind]})" if found else "-" for found in (before, after)))
        for kind, _ in (after + before).most_common()
    ]
    note = "Held-out questions, greedy. By accident: a varied database tells the query from the right one."
    return ReportSection.of_table("Queries", ("the answer is", "before", "after"), rows, note)


def _kinds(run: RunData, evaluation: str, reward: str) -> Counter[str]:
    scores = (item.trajectory.score for item in run.folder.read_trajectories(evaluation))
    return Counter(_kind(score.verdicts.get(reward) if score else None) for score in scores)


def _kind(verdict: Verdict | None) -> str:
    if verdict is None or verdict.passed is None:
        return "could not be judged"
    if verdict.passed:
        return "right"
    if NO_ANSWER in verdict.reasons:
        return "no answer"
    if "failure" in verdict.data:
        return f"fails: {verdict.data['failure']}"
    return "right on the given database only, by accident" if verdict.data.get("instances", 0) > 1 else "other rows"


def verdict(trajectory: Trajectory, _config: Mapping[str, Any]) -> ReportSection | None:
    """None if no query is judged, because the trajectory has no score or its sample no answer."""
    if trajectory.score is None or trajectory.sample.answer is None:
        return None
    sql = predicted_sql(trajectory)
    queries = [("right", each) for each in accepted_answers(trajectory.sample)] + [("answered", sql or "no query")]
    judged = [each for each in trajectory.score.verdicts.values() if "semantics" in each.data]
    why = "; ".join(reason for each in judged for reason in each.reasons)
    parts = [ReportSection.of_table(_TITLE, ("query", "SQL"), queries, why)]
    html = [part.html for part in parts if part is not None]
    for data in (each.data for each in judged if all(each.data.get(name) for name in _RESULTS)):
        columns = [f"<div><h3>{title}</h3>{_rows(data[name])}</div>" for name, title in _RESULTS.items()]
        html.append(f'<div class="beside">{"".join(columns)}</div>')
    return ReportSection(_TITLE, "".join(html))


def _rows(cells: Sequence[Sequence[str]]) -> str:
    names, *rows = cells
    table = ReportSection.of_table(_TITLE, names, rows)
    return table.html if table is not None else f'<p class="note">no rows of {escape(", ".join(names))}</p>'
