"""The samples of tasks as they are made today, for trajectories that were stored earlier."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rlfactory_core.errors import RlfactoryError, UsageError
from rlfactory_core.reporting.progress import Progress, count_text
from rlfactory_core.reporting.trajectories import json_text, sample_data
from rlfactory_core.tasks.setup import Tasks, TaskSetup
from rlfactory_core.types import Sample


@dataclass(slots=True)
class TodaysSamples:
    """The tasks' samples as they are made today, which scorers see if they ask what the stored ones ask.

    They have the types that JSON loses, such as tuples, and answers that were corrected since.
    """

    tasks: Tasks
    progress: Progress
    _made: dict[tuple[str, str], Mapping[str, Sample]] = field(default_factory=dict)
    _corrected: Counter[str] = field(default_factory=Counter)
    _other: Counter[str] = field(default_factory=Counter)

    def of(self, stored: Sample, file: int | str) -> Sample:
        split = "train" if isinstance(file, int) else "eval"
        setup = self.tasks.by_name.get(stored.task)
        if setup is None:
            raise UsageError(f"A stored trajectory is of the task '{stored.task}', which the configuration has not.")
        if (stored.task, split) not in self._made:
            self._made[stored.task, split] = self._samples(setup, split)
        made = self._made[stored.task, split]
        if not made:
            return stored
        own = made.get(stored.id)
        now, then = ({} if each is None else json.loads(json_text(sample_data(each))) for each in (own, stored))
        if own is None or now.get("prompt") != then.get("prompt"):
            self._other[stored.id] += 1
            return stored
        if any(now.get(key) != then.get(key) for key in ("answer", "metadata")):
            self._corrected[stored.id] += 1
        return replace(stored, answer=own.answer, metadata=own.metadata)

    def _samples(self, setup: TaskSetup, split: str) -> Mapping[str, Sample]:
        try:
            return {sample.id: sample for sample in setup.samples(split)}
        except RlfactoryError as error:
            self.progress.say(
                f"The samples are those of the stored trajectories, because today's cannot be had: {error}"
            )
            return {}

    @property
    def notes(self) -> list[str]:
        texts = {
            "The task's data has another answer or other metadata today for {}, such as '{}': today's count.": (
                self._corrected
            ),
            "The task's data does not have {} as asked here, such as '{}': they are as they were stored.": self._other,
        }
        return [text.format(count_text(len(ids), "sample"), next(iter(ids))) for text, ids in texts.items() if ids]
