"""A growing ``metrics.jsonl`` is read once, and a long one is thinned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlfactory_ui.metrics_file import KEPT, MetricsFile


def line(step: int, **more: float) -> str:
    return json.dumps({"step": step, "reward": step / 10, **more}) + "\n"


def add(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_each_line_comes_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    assert not file.update()
    add(path, line(1) + line(2)[:-5])
    assert file.update()
    assert [row["step"] for row in file.rows] == [1]
    assert not file.update()
    add(path, line(2)[-5:] + line(3))
    assert file.update()
    assert [row["step"] for row in file.rows] == [1, 2, 3]


def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    add(path, "".join(line(step) for step in range(1, 9)))
    file = MetricsFile(path)
    file.update()
    other = tmp_path / "other"
    add(other, line(1) + line(2) + line(3))
    other.replace(path)  # as a resumed run does it
    assert file.update()
    assert [row["step"] for row in file.rows] == [1, 2, 3]


def test_a_damaged_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    add(path, line(1) + "{nonsense\n[1]\n" + line(2))
    file = MetricsFile(path)
    file.update()
    assert [row["step"] for row in file.rows] == [1, 2]


@pytest.mark.parametrize("at_once", [True, False])
def test_of_a_long_run_some_rows_are_kept(tmp_path: Path, at_once: bool) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [line(step, **({"eval/exact_match": step / 9000} if step % 10 == 0 else {})) for step in range(1, 9001)]
    file = MetricsFile(path)
    for start in range(0, 9000, 9000 if at_once else 300):
        add(path, "".join(lines[start : start + (9000 if at_once else 300)]))
        file.update()
    steps = [row["step"] for row in file.rows]
    assert steps == sorted(set(steps), key=int)
    assert (steps[0], steps[-1]) == (1, 9000)
    assert KEPT <= len(steps) <= 2 * KEPT + 2
    measured = [row for row in file.rows if "eval/exact_match" in row]
    assert len(measured) >= KEPT / 2
    assert all(row["eval/exact_match"] == (row["step"] or 0) / 9000 for row in measured)
    add(path, line(9001))
    file.update()
    assert file.rows[-1]["step"] == 9001
