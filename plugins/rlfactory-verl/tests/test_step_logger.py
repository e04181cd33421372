"""Where verl logs a step, our run's folder is written and a wish to stop is granted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlfactory_core.errors import RunStopped

pytest.importorskip("verl", reason="verl's trainer is what is watched")
from rlfactory_verl.events import StopFile
from rlfactory_verl.trainer import StepLogger


class Tracking:
    """verl's own loggers."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.exit_codes: list[int] = []

    def log(self, data: dict[str, Any], step: int) -> None:
        self.logged.append((step, data))

    def finish(self, exit_code: int = 0) -> None:
        self.exit_codes.append(exit_code)


class Recorder:
    """Gives a step's metrics, and notes which steps it was given; between them, where the trainer saved."""

    def __init__(self) -> None:
        self.steps: list[int | str] = []

    def save(self) -> None:
        self.steps.append("saved")

    def end_step(self, step: int, verl: dict[str, Any]) -> dict[str, float]:
        self.steps.append(step)
        return {"reward": 0.5}


@pytest.fixture
def stop(tmp_path: Path) -> StopFile:
    return StopFile(tmp_path)


def logger(stop: StopFile) -> tuple[StepLogger, Tracking, Recorder]:
    tracking, recorder = Tracking(), Recorder()
    return StepLogger(tracking, recorder, stop, recorder.save), tracking, recorder  # type: ignore[arg-type]


def test_verls_loggers_get_our_metrics_too(stop: StopFile) -> None:
    made, tracking, recorder = logger(stop)
    made.log(data={"training/global_step": 3, "actor/lr": 1e-6}, step=3)
    assert recorder.steps == [3]
    assert tracking.logged == [(3, {"training/global_step": 3, "actor/lr": 1e-6, "reward": 0.5})]


@pytest.mark.parametrize(
    ("reason", "said"), [("", ""), ("The judge's tokens are spent.", " The judge's tokens are spent.")]
)
def test_a_stop_comes_after_the_step_is_saved_and_written(stop: StopFile, reason: str, said: str) -> None:
    stop.ask(reason)
    made, tracking, recorder = logger(stop)
    with pytest.raises(RunStopped, match=rf"^Stopped after step 3, which is saved\.{said}$"):
        made.log(data={"training/global_step": 3}, step=3)
    assert recorder.steps == ["saved", 3]
    assert len(tracking.logged) == 1


def test_the_evaluation_before_training_is_no_step_and_no_place_to_stop(stop: StopFile) -> None:
    stop.ask()
    made, tracking, recorder = logger(stop)
    made.log(data={"val-core/reward": 0.1}, step=0)
    assert recorder.steps == []
    assert tracking.logged == [(0, {"val-core/reward": 0.1})]


@pytest.mark.parametrize("code", [0, 1])
def test_verls_loggers_are_finished(stop: StopFile, code: int) -> None:
    made, tracking, _ = logger(stop)
    made.finish(exit_code=code)
    assert tracking.exit_codes == [code]
