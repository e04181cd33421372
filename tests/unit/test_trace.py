"""``rlfactory trace``: what is shown, in which order, and the errors."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from reporting_examples import decode, finished_run, infra_fault, make_trajectory, run_trace
from rich.console import Console

from rlfactory_core.cli.trace import show, trajectory_lines
from rlfactory_core.errors import UsageError
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.trajectories import StoredTrajectory


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return finished_run(tmp_path)


def test_the_last_step_plain_with_marks_for_masked_and_own(folder: RunFolder) -> None:
    text = run_trace(str(folder.path), "--limit", "1")
    assert "── q1  two hop  attempt 0  reward 0.000" in text
    assert "\n| <|im_start|>system\n" in text
    assert "\n> <tool_call>search Orla Finn</tool_call>\n" in text
    assert "  ← search  12 ms, 27 bytes" in text
    assert "rewards  exact match 0.000, format 1.000" in text
    assert "stop     final answer, 2 turns, 1 tool call, 60 sampled of" in text
    assert "1 of 4 trajectories of" in text
    assert "--limit 4 shows all" in text
    assert "\x1b[" not in text


def test_best_worst_and_one_sample(folder: RunFolder) -> None:
    heads = [
        line for line in run_trace(str(folder.path), "--best", "--limit", "4").splitlines() if line.startswith("──")
    ]
    assert [line[-5:] for line in heads] == ["0.300", "0.200", "0.100", "0.000"]
    worst = run_trace(str(folder.path), "--worst", "--limit", "1")
    assert "reward 0.000" in worst
    after = run_trace(str(folder.path), "--step", "after", "--sample", "q1")
    assert "1 of 1 trajectories" in after
    assert "evaluation after" in after


def test_own_tokens_stand_out_and_masked_ones_are_dim_in_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stored = StoredTrajectory.of(make_trajectory(), decode)
    lines = {line.plain: str(line.style) for line in trajectory_lines(stored, marks=False, full=False)}
    assert lines["You may search.<|im_end|>"] == "dim"
    assert lines["<answer>Tarn</answer>"] == "bold"
    out = Terminal()
    show([stored], out, where="here", total=1)
    assert "reward 1.000" in out.getvalue()


def test_faults_and_masking_are_named() -> None:
    stored = StoredTrajectory.of(make_trajectory(0.0, faults=(infra_fault(),)), decode)
    console = Console(file=io.StringIO(), record=True, width=120)
    for line in trajectory_lines(stored, marks=True, full=False):
        console.print(line)
    text = console.export_text()
    assert "fault    infra, search, turn 1: no answer within 30 s" in text
    assert "masked   left out of the update" in text


def test_the_images_that_the_model_sees_are_named_with_their_files() -> None:
    one = make_trajectory()
    seen = replace(one, turns=(one.turns[0], replace(one.turns[1], images=("0123456789ab",))))
    lines = [line.plain for line in trajectory_lines(StoredTrajectory.of(seen, decode), marks=True, full=False)]
    (line,) = [line for line in lines if "0123456789ab" in line]
    assert line.split() == ["sees", "image", "0123456789ab,", "trajectories/images/0123456789ab.png"]
    assert lines.index(line) > lines.index("| <tool_response>Orla Finn leads Velk Works.</tool_response>")


def test_a_long_prompt_is_folded_unless_full(tmp_path: Path) -> None:
    folder = RunFolder.create("search", root=tmp_path)
    stored = make_trajectory()
    folder.write_trajectories(1, [stored], lambda ids: "\n".join(f"line {index}" for index in range(40)))
    folder.write_config({})
    assert "30 more lines (--full)" in run_trace(str(folder.path))
    assert "more lines" not in run_trace(str(folder.path), "--full")


def test_errors_say_what_there_is(folder: RunFolder, tmp_path: Path) -> None:
    for arguments, message in (
        (["--step", "11"], "Saved: before, 10, after"),
        (["--step", "soon"], "Saved: before, 10, after"),
        (["--sample", "q9"], "q1"),
    ):
        with pytest.raises(UsageError, match=message):
            run_trace(str(folder.path), *arguments)
    empty = RunFolder.create("search", root=tmp_path / "other")
    empty.write_config({})
    with pytest.raises(UsageError, match="no trajectories yet"):
        run_trace(str(empty.path))
    with pytest.raises(UsageError, match="no run at"):
        run_trace(str(tmp_path / "absent"))


def test_scoring_is_shown_with_who_took_how_long_and_what_was_counted() -> None:
    made = make_trajectory()
    assert made.score is not None
    latency = {"judge": 0.4, "execution": 0.31, "exact_match": 1e-6}
    score = replace(made.score, latency_s=latency, seconds=0.42, counts={"judge.requests": 2.0})
    for scored, shown in ((score, True), (made.score, False)):
        stored = StoredTrajectory.of(replace(made, score=scored), decode)
        text = "\n".join(line.plain for line in trajectory_lines(stored, marks=False, full=False))
        assert ("scoring  420 ms: judge 400 ms, execution 310 ms\ncounts   judge.requests 2\n" in text) == shown
