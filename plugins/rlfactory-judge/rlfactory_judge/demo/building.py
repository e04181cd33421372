"""The demo's judge as a folder in the cache. The first process that asks for it builds it."""

from __future__ import annotations

from pathlib import Path

from rlfactory_core.reporting.progress import NullProgress, Progress
from rlfactory_judge.demo.world import Names


def judge_model(seed: int, progress: Progress) -> Path:
    """The folder of the judge's model for the names of ``seed``.

    A run and a later evaluation get the same model.

    Raises:
        DataError: the cache cannot be written.
    """
    from rlfactory_core.engines.local.tiny import tiny_model_folder
    from rlfactory_judge.demo.judge_model import recipe

    shown = progress if type(progress) is NullProgress else _JudgeProgress(progress)
    return tiny_model_folder(recipe(Names.make(seed)), seed, shown)


class _JudgeProgress(NullProgress):
    """Names the judge in each stage, since the policy's stages follow under the same names."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self._announced = False

    def stage(self, name: str, total: int | None = None, unit: str = "") -> None:
        if not self._announced:
            self._announced = True
            self._progress.say("the demo's judge is not in the cache: it learns first, from labelled examples")
        self._progress.stage(f"the judge's {name}", total, unit)

    def advance(self, count: int = 1, **numbers: float) -> None:
        self._progress.advance(count, **numbers)
