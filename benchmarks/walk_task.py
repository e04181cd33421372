"""The search task without held-out samples, so that the first token is one of training; a part of `walk`."""

from __future__ import annotations

from collections.abc import Iterable

from rlfactory_search.task import SearchTask

from rlfactory_core import Sample, hookimpl
from rlfactory_core.hookspecs import Register


class Walked(SearchTask):
    """`SearchTask` otherwise."""

    def samples(self, split: str) -> Iterable[Sample]:
        return super().samples(split) if split == "train" else ()


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("walk_task", Walked)
