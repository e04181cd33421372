"""The user's display shows the events of the trainer's process in their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlfactory_verl.events import EventProgress, EventReader, StopFile, stopped

from rlfactory_core.reporting.progress import Progress


class Heard(Progress):
    """A display that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def stage(self, name: str, total: int | None = None, unit: str = "") -> None:
        self.calls.append(("stage", name, total, unit))

    def advance(self, count: int = 1, **numbers: float) -> None:
        self.calls.append(("advance", count, numbers))

    def say(self, text: str) -> None:
        self.calls.append(("say", text))


def test_each_event_is_shown_once_and_in_order(tmp_path: Path) -> None:
    file, heard = tmp_path / "events", Heard()
    teller, reader = EventProgress(file), EventReader(file)
    reader.replay(heard)
    assert heard.calls == []
    with teller:
        teller.stage("evaluate before")
        teller.say("zwei\nZeilen — 二")
        reader.replay(heard)
        teller.stage("train", 3, "step")
        teller.advance(1, reward=0.5, **{"eval/exact_match": 0.25})
        teller.advance(0)
        reader.replay(heard)
        reader.replay(heard)
    reader.replay(heard)
    assert heard.calls == [
        ("stage", "evaluate before", None, ""),
        ("say", "zwei\nZeilen — 二"),
        ("stage", "train", 3, "step"),
        ("advance", 1, {"reward": 0.5, "eval/exact_match": 0.25}),
        ("advance", 0, {}),
    ]
    assert reader.stages == ["evaluate before", "train"]


def test_an_incomplete_line_is_shown_once_it_is_complete(tmp_path: Path) -> None:
    file, heard = tmp_path / "events", Heard()
    EventProgress(file).say("första")
    whole = file.read_bytes()
    reader = EventReader(file)
    file.write_bytes(whole + whole[:-9])
    reader.replay(heard)
    reader.replay(heard)
    assert heard.calls == [("say", "första")]
    file.write_bytes(whole + whole)
    reader.replay(heard)
    assert heard.calls == [("say", "första")] * 2


def test_the_trainers_own_progress_counts_too(tmp_path: Path) -> None:
    """It is also the progress that the task opens with: what it does must not fail without a display."""
    teller = EventProgress(tmp_path / "events")
    teller.advance(1, reward=1.0)
    teller.stage("train", 2, "step")
    teller.advance(2)
    teller.close()


def test_a_stop_requested_in_one_process_reaches_all_with_its_reason(tmp_path: Path) -> None:
    workers, trainer = [StopFile(tmp_path), StopFile(tmp_path)], StopFile(tmp_path)
    assert not trainer.requested
    assert trainer.reason == ""
    for number, worker in enumerate(workers):
        worker.ask(f"Reason {number}.")
    assert trainer.requested
    assert str(stopped("Stopped.", trainer)) == "Stopped. Reason 0."
    trainer.clear()
    assert not workers[0].requested
    assert list(tmp_path.iterdir()) == []


def test_a_users_stop_request_has_no_reason(tmp_path: Path) -> None:
    stop = StopFile(tmp_path)
    stop.ask()
    assert stop.requested
    assert str(stopped("Stopped.", stop)) == "Stopped."
    stop.ask("The judge's tokens are spent.")
    assert stop.reason == "The judge's tokens are spent."
