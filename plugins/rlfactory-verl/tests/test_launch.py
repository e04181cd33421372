"""If Ray takes too long to start, it is started again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlfactory_core.errors import TrainingError
from rlfactory_core.reporting.progress import Progress

ray = pytest.importorskip("ray", reason="the verl engine")
from rlfactory_verl.cluster import launch  # noqa: E402

LATE = "The current node timed out during startup. This could happen because some of the raylet failed to startup."


class Events(Progress):
    """Records calls in order; used as the run's progress and as its janitor."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def say(self, text: str) -> None:
        self.seen.append(text)

    def end_processes(self) -> None:
        self.seen.append("tidied up")


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Events]:
    """Start a Ray that fails with these words, one after the other, and then starts."""

    def start(*failures: str) -> Events:
        events, left = Events(), list(failures)

        def init(**options: Any) -> None:
            if left:
                raise Exception(left.pop(0))
            events.seen.append(f"started at {options['address']}")

        monkeypatch.setattr(ray, "init", init)
        launch._start({"address": "local"}, events, events)  # type: ignore[arg-type]
        return events

    return start


def test_a_start_that_timed_out_is_repeated_after_a_clean_up(start: Callable[..., Events]) -> None:
    again = "Ray took too long to start; trying again"
    assert start(LATE, LATE).seen == [
        f"{again} (1 of 2)",
        "tidied up",
        f"{again} (2 of 2)",
        "tidied up",
        "started at local",
    ]


def test_the_number_of_starts_is_limited(start: Callable[..., Events]) -> None:
    with pytest.raises(TrainingError, match=r"Ray did not start, 3 times over.*Is the machine busy"):
        start(LATE, LATE, LATE)


def test_another_error_is_raised_at_once(start: Callable[..., Events]) -> None:
    with pytest.raises(Exception, match="no such option"):
        start("no such option")
