"""Progress and summary as people see them, on a recorded terminal and in a file."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from reporting_examples import finished_run
from rich.console import Console

from rlfactory_core.cli.ui.progress import PlainProgress, make_progress
from rlfactory_core.cli.ui.rich_progress import RichProgress
from rlfactory_core.cli.ui.summary import print_summary
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress, number_label, number_text, seconds_text


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_come_at_tenths_and_never_too_often() -> None:
    clock, out = Clock(), io.StringIO()
    with PlainProgress(out, clock=clock) as progress:
        progress.stage("training", 100, "step")
        for step in range(100):
            clock.now += 1.0
            progress.advance(reward=step / 100)
        progress.say("saved")
    lines = out.getvalue().splitlines()
    assert lines[0] == "training: 100 steps"
    assert lines[1] == "  step 10/100, 10 s, about 1:30 min left, reward 0.090"
    assert lines[-2:] == ["saved", "  done in 1:40 min, reward 0.990"]
    assert len(lines) == 12


def test_plain_lines_fast_and_slow_stages() -> None:
    clock, out = Clock(), io.StringIO()
    with PlainProgress(out, clock=clock) as progress:
        progress.stage("fast", 1000)
        for _ in range(1000):
            progress.advance()
        progress.stage("slow")
        for _ in range(4):
            clock.now += 20.0
            progress.advance(5, accuracy=0.5)
    text = out.getvalue()
    assert text.splitlines() == [
        "fast",
        "  done in 0.0 s",
        "slow",
        "  10, 40 s, accuracy 0.500",
        "  20, 1:20 min, accuracy 0.500",
        "  done in 1:20 min, 20, accuracy 0.500",
    ]


def test_an_interrupted_stage_is_not_called_done() -> None:
    clock, out = Clock(), io.StringIO()

    def work() -> None:
        with PlainProgress(out, clock=clock) as progress:
            progress.stage("training", 10, "step")
            progress.advance(3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert out.getvalue().splitlines()[-1] == "  stopped after 0.0 s, step 3/10"


def test_rich_keeps_finished_stages_and_gives_the_terminal_back() -> None:
    clock, out = Clock(), io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)

    def work() -> None:
        with RichProgress(out, console=console, clock=clock) as progress:
            progress.stage("warm start", 400, "step")
            clock.now += 48.0
            progress.advance(400, **{"loss": 0.2, "eval/exact_match": 0.5})
            progress.stage("training", 60, "step")
            clock.now += 30.0
            progress.advance(12, reward=0.25, sampled_tokens_s=8123.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    text = out.getvalue()
    assert "✓ warm start" in text
    assert "48 s  400 steps  held-out exact match 0.500  loss 0.200" in text
    assert "✗ training" in text
    assert "step 12/60" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is hidden, and shown again


def test_rich_live_rows_show_count_times_and_numbers() -> None:
    clock = Clock()
    progress = RichProgress(io.StringIO(), console=Console(file=io.StringIO(), width=100), clock=clock)
    try:
        progress.stage("training", 60, "step")
        clock.now += 30.0
        progress.advance(12, **{"reward": 0.25, "eval/exact_match": 0.5, "sampled_tokens_s": 12345.0})
        shown = Console(file=io.StringIO(), width=100, record=True)
        shown.print(progress._render())
    finally:
        progress.close()
    text = shown.export_text()
    assert "step 12/60  30 s  2:00 min left" in text
    assert "reward 0.250   held-out exact match 0.500   sampled tokens/s 12.3k" in text


def test_the_display_is_chosen_by_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(make_progress(Terminal()), RichProgress)
    assert isinstance(make_progress(io.StringIO()), PlainProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_progress(Terminal()), PlainProgress)


def test_null_progress_takes_everything() -> None:
    with Progress() as progress:
        progress.advance(3)
        progress.stage("x")
        progress.advance(1, a=2.0)
        progress.say("y")
    progress.close()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (12, "12"),
        (0.5, "0.500"),
        (8123.4, "8,123"),
        (12345.0, "12.3k"),
        (2.5e6, "2.5M"),
        (1e-6, "1.0e-06"),
    ],
)
def test_numbers_for_people(value: float, text: str) -> None:
    assert number_text(value) == text


def test_labels_and_durations_for_people() -> None:
    assert number_label("eval/exact_match/two_hop") == "held-out exact match, two hop"
    assert number_label("trained_tokens_s") == "trained tokens/s"
    assert number_label("sampled/exact_match") == "sampled exact match"
    assert number_label("control/no_results/exact_match/two_hop") == "control (no results) exact match, two hop"
    assert [seconds_text(s) for s in (0.84, 48, 127, 3727)] == ["0.8 s", "48 s", "2:07 min", "1:02:07 h"]


def test_the_summary_says_what_was_learned_and_what_to_do_next(tmp_path: Path) -> None:
    folder = finished_run(tmp_path)
    (folder.checkpoints / "latest").mkdir()
    folder.report.write_text("x")
    out = io.StringIO()
    print_summary(folder, out)
    text = out.getvalue()
    assert "rose from 0.50 to 0.98" in text
    assert "two hop                0.000 → 0.970   0.050 → 0.910" in text
    assert "Control (empty search): exact match 0.005" in text
    assert "Faults in training: 41 wrong tool calls." in text
    assert "<answer>Velk Works</answer>" in text
    assert "<answer>Tarn</answer>" in text
    assert f"rlfactory trace {folder.path} --worst\n" in text  # one line, however long
    assert f"rlfactory eval --plugin search --model {folder.path}\n" in text
    assert "\x1b[" not in text


def test_the_summary_says_which_trajectories_were_left_out_and_what_the_guard_found(tmp_path: Path) -> None:
    folder, out = RunFolder.create("search", root=tmp_path), io.StringIO()
    masked = {"judge": 3, "search": 37}
    told = [f"step {step}: odd" for step in range(7)]
    folder.write_summary(
        {"steps": 2, "warnings": told, "faults": {"policy": 3}, "trajectories": 5120, "masked": masked, "replays": 2}
    )
    print_summary(folder, out)
    words = " ".join(out.getvalue().split())
    assert (
        "Faults in training: 3 wrong tool calls. 40 of 5,120 trajectories were masked (search 37, judge 3), and"
        in words
    )
    assert "left out of the updates; steps were played again 2 times, because too many were masked." in words
    assert "2 earlier warnings: see summary.json. warning: step 2: odd" in words


def test_the_summary_of_a_run_without_anything(tmp_path: Path) -> None:
    out = io.StringIO()
    print_summary(RunFolder.create("search", root=tmp_path), out)
    assert "has not ended" in out.getvalue()
    assert "rlfactory eval" not in out.getvalue()
