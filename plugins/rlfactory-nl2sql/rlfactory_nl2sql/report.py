"""The section of a run's report on the model's queries: how many are right, and why the others are not."""

from __future__ import annotations

from collections import Counter

from rlfactory_core import Verdict
from rlfactory_core.reporting import RunData, Section
from rlfactory_nl2sql.connection import Failure
from rlfactory_nl2sql.rewards.answers import NO_ANSWER

RIGHT = "right"
BY_ACCIDENT = "right on the given database only, by accident"
WRONG = "other rows"
NONE = "no answer"
UNKNOWN = "could not be judged"
FAILURES = {
    Failure.ERROR: "an error: syntax, unknown names, types",
    Failure.REFUSED: "refused: more than reading",
    Failure.DEADLINE: "too slow",
    Failure.ROWS: "too many rows",
    Failure.BYTES: "too large a result",
    Failure.MEMORY: "too much memory",
}
ORDER = (RIGHT, BY_ACCIDENT, WRONG, *FAILURES.values(), NONE, UNKNOWN)
REWARD = "execution"


def answers(run: RunData) -> Section | None:
    """The verdicts of the held-out evaluations; None if no reward verified by execution."""
    name = _label(run)
    if name is None:
        return None
    before, after = (_kinds(run, f"eval-{when}", name) for when in ("before", "after"))
    rows = [(kind, _share(kind, before), _share(kind, after)) for kind in ORDER if before[kind] or after[kind]]
    note = "Held-out questions, greedy. By accident: a varied database tells the query from the right one."
    return Section.of_table("Queries", ("the answer is", "before", "after"), rows, note)


def _label(run: RunData) -> str | None:
    """The label of the execution reward in this run; None if it is not in use."""
    rewards = run.config.get("rewards")
    if rewards is None:  # the task's own
        return REWARD if REWARD in run.rewards else None
    named = (reward for reward in rewards if str(reward["name"]).rpartition(":")[2] == REWARD)
    return next((str(reward.get("label") or reward["name"]) for reward in named), None)


def _kinds(run: RunData, evaluation: str, reward: str) -> Counter[str]:
    scores = (item.trajectory.score for item in run.folder.read_trajectories(evaluation))
    return Counter(_kind(score.verdicts.get(reward) if score else None) for score in scores)


def _kind(verdict: Verdict | None) -> str:
    if verdict is None or verdict.passed is None:
        return UNKNOWN
    if verdict.passed:
        return RIGHT
    if NO_ANSWER in verdict.reasons:
        return NONE
    if "failure" in verdict.data:
        return FAILURES[Failure(verdict.data["failure"])]
    return BY_ACCIDENT if verdict.data.get("instances", 0) > 1 else WRONG


def _share(kind: str, found: Counter[str]) -> str:
    return f"{found[kind] / found.total():.0%} ({found[kind]})" if found else "-"
