"""The report's section: how many answers are right, and why the others are not. That of a trajectory: its queries."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rlfactory_nl2sql.report import answers, verdict
from rlfactory_nl2sql.rewards.execution import ExecutionMatch
from rlfactory_nl2sql.task import Nl2SqlTask

from rlfactory_core import Message, Sample, Score, StopReason, Trajectory, Verdict
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting import RunData
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.report import plugin_sections, write_report
from rlfactory_core.tasks.scorers import Scorers
from rlfactory_core.types import Turn

GOLD = "SELECT name FROM shop WHERE city_id = 1"
RIGHT = "<answer>SELECT s.name FROM shop AS s WHERE s.city_id = 1</answer>"
ANSWERS = {
    "right": RIGHT,
    "right on the given database only, by accident": "<answer>SELECT name FROM shop WHERE id < 3</answer>",
    "other rows": "<answer>SELECT name FROM shop</answer>",
    "fails: error": "<answer>SELECT nam FROM shop</answer>",
    "fails: refused": "<answer>DELETE FROM shop</answer>",
    "no answer": "I do not know.",
}


def trajectories(shops: Path, texts: Sequence[str]) -> list[Trajectory]:
    """Answers, verified by execution."""

    async def scored() -> list[Trajectory]:
        task = Nl2SqlTask({"db": shops})
        weighted = {"execution": (ExecutionMatch(), 1.0)}
        scorers = Scorers.of(weighted)
        await scorers.open(task, served=None)
        try:
            played = [
                Trajectory(
                    Sample(f"q{number}", "Which shops are in Oslo?", GOLD),
                    0,
                    (Turn((1,), (2,), (-0.5,), Message("assistant", text)),),
                    StopReason.FINAL_ANSWER,
                )
                for number, text in enumerate(texts)
            ]
            return [await scorers.layer.score_trajectory(item) for item in played]
        finally:
            await scorers.close()
            await task.close()

    return asyncio.run(scored())


def table(page: str) -> dict[str, list[str]]:
    (part,) = re.findall(r"<h2>Queries</h2>(.*?)</section>", page, re.DOTALL)
    rows = re.findall(r"<tr><th>(.*?)</th>(<td.*?)</tr>", part)
    return {name: re.findall(r"<td[^>]*>(.*?)</td>", cells) for name, cells in rows}


@pytest.mark.slow
def test_each_kind_of_answer_is_counted_before_and_after(shops: Path, tmp_path: Path) -> None:
    folder = RunFolder.create("nl2sql", root=tmp_path / "runs")
    folder.write_config({"plugin": "nl2sql", "rewards": None})
    registry = Registry()
    registry.load("nl2sql")
    assert "Queries" not in write_report(folder, plugin_sections(registry.registered("report_section"))).read_text(
        encoding="utf-8"
    )

    folder.write_trajectories("eval-before", trajectories(shops, list(ANSWERS.values())), str)
    before = table(
        write_report(folder, plugin_sections(registry.registered("report_section"))).read_text(encoding="utf-8")
    )
    assert set(before) == set(ANSWERS)
    assert set(map(tuple, before.values())) == {("17% (1)", "-")}

    folder.write_trajectories("eval-after", trajectories(shops, [RIGHT, RIGHT, "", RIGHT]), str)
    after = table(
        write_report(folder, plugin_sections(registry.registered("report_section"))).read_text(encoding="utf-8")
    )
    assert after["right"] == ["17% (1)", "75% (3)"]
    assert after["no answer"] == ["17% (1)", "25% (1)"]
    assert after["other rows"] == ["17% (1)", "0% (0)"]


def test_the_reward_may_have_a_label_or_be_absent(tmp_path: Path) -> None:
    folder = RunFolder.create("nl2sql", root=tmp_path / "runs")
    folder.write_config({"rewards": [{"name": "rlfactory-nl2sql:execution", "label": "truth"}]})
    score = Score(1.0, verdicts={"truth": Verdict(passed=True)})
    played = Trajectory(Sample("q", "Which?", GOLD), 0, (), StopReason.FINAL_ANSWER, score=score)
    masked = replace(played, score=None)
    folder.write_trajectories("eval-after", [played, masked], str)
    section = answers(RunData.read(folder))
    assert section is not None
    assert re.findall(r"<th>(right|could not be judged)</th>.*?(\d+% \(\d\))", section.html) == [
        ("right", "50% (1)"),
        ("could not be judged", "50% (1)"),
    ]
    folder.write_config({"rewards": [{"name": "valid_sql"}]})
    assert answers(RunData.read(folder)) is None


def shown(trajectory: Trajectory, tmp_path: Path) -> str:
    """As after the way through the run's files."""
    folder = RunFolder.create("nl2sql", root=tmp_path / "runs")
    folder.write_trajectories(1, [trajectory], str)
    (stored,) = folder.read_trajectories(1)
    section = verdict(stored.trajectory, {})
    assert section is not None
    return section.html


def test_a_wrong_query_is_shown_beside_the_right_one(shops: Path, tmp_path: Path) -> None:
    (played,) = trajectories(shops, ["<answer>SELECT name || '<b>' AS \"<i>\" FROM shop</answer>"])
    html = shown(played, tmp_path)
    right, answered = html.partition("<h3>right</h3>")[2].split("<h3>answered</h3>")
    assert "&lt;b&gt;" in answered
    assert "&lt;b&gt;" not in right
    assert "<th>&lt;i&gt;</th>" in answered
    assert "SELECT name FROM shop WHERE city_id = 1" in html
    assert "rows, expected" in html  # the verdict's reason
    assert "<b>" not in html
    assert "<i>" not in html


def test_a_large_result_is_kept_in_part(shops: Path, tmp_path: Path) -> None:
    wide = ", ".join(f"'{'x' * 100}' AS column_{number}" for number in range(40))
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)"
    (played,) = trajectories(shops, [f"<answer>{numbers} SELECT {wide} FROM n</answer>"])
    assert played.score is not None
    data = played.score.verdicts["execution"].data
    assert [len(row) for row in data["got"]] == [12] * 6
    assert max(len(cell) for row in data["got"] for cell in row) <= 60


@pytest.mark.slow
@pytest.mark.parametrize("text", [RIGHT, "I do not know."])
def test_without_a_difference_there_are_no_results(shops: Path, tmp_path: Path, text: str) -> None:
    (played,) = trajectories(shops, [text])
    html = shown(played, tmp_path)
    assert "<h3>answered</h3>" not in html
    assert ("no query" in html) == (text != RIGHT)


def test_without_a_score_there_is_no_section(shops: Path) -> None:
    (played,) = trajectories(shops, [RIGHT])
    assert verdict(replace(played, score=None), {}) is None
