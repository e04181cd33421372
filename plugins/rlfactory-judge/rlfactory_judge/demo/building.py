"""The judge's model as a folder in the cache: warm-started by the first process that asks for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlfactory_core.reporting.progress import NullProgress, Progress
from rlfactory_judge.demo.world import Names

if TYPE_CHECKING:
    from rlfactory_core.tiny import TinyModelRecipe

_HEAD_START_S = 1.0  # for the process that shows what it does, before those that show nothing


def judge_model(seed: int, progress: Progress) -> Path:
    """The model for names of ``seed``, as a Hugging Face folder.

    One process builds it, and others that ask at the same time wait. How many there are changes nothing about it, so
    that a run and a later evaluation have the same judge.

    Raises:
        DataError: the cache cannot be written to.
    """
    from rlfactory_judge.demo.judge_model import recipe

    return build_judge(recipe(Names.make(seed)), seed, progress)


def build_judge(recipe: TinyModelRecipe, seed: int, progress: Progress) -> Path:
    """Likewise, by a recipe of the caller's."""
    from rlfactory_core.engines.local.model_cache import model_folder

    folder = model_folder(recipe, (), seed, 1)
    if folder.is_dir():
        return folder
    from rlfactory_core.engines.local.default_model import build_default_model
    from rlfactory_core.engines.local.quiet import quiet_transformers
    from rlfactory_core.engines.local.workers import Workers

    if type(progress) is NullProgress:
        time.sleep(_HEAD_START_S)
    with _alone(folder.with_name(f".{folder.name}.lock")):
        if not folder.is_dir():
            progress.say("the demo's judge is not in the cache: it learns first, from labelled examples")
            with quiet_transformers():
                build_default_model(recipe, (), seed, Workers(), _OfTheJudge(progress))
    return folder


class _OfTheJudge(NullProgress):
    """Says of each stage that it is the judge's, since the policy's follow with the same names."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def stage(self, name: str, total: int | None = None, unit: str = "") -> None:
        self._progress.stage(f"the judge's {name}", total, unit)

    def advance(self, count: int = 1, **numbers: float) -> None:
        self._progress.advance(count, **numbers)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """No other process of this machine is in here meanwhile."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
