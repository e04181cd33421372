"""Where a training stands among its stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    """A stage that has ended, for ``summary.json``."""

    method: str
    first: int  # its first step
    last: int
    ended: str  # why


@dataclass(frozen=True, slots=True)
class Place:
    """The current stage. Steps count on from stage to stage.

    Args:
        stages: how many there are.
        done: those before it.
        first: its first step.
    """

    stages: int = 1
    done: tuple[Done, ...] = ()
    first: int = 1

    @classmethod
    def of(cls, stages: int, resumed: Mapping[str, Any]) -> Place:
        """From what a checkpoint has of the run; a new run, or one of an earlier version, is in its first stage."""
        done = tuple(Done(**each) for each in resumed.get("stages_done", ()))
        return cls(stages, done, int(resumed.get("stage_first", 1)))

    @property
    def number(self) -> int:
        """From 0."""
        return len(self.done)

    @property
    def is_last(self) -> bool:
        return self.number == self.stages - 1

    def last(self, steps: int) -> int:
        """Its last step, if it has so many."""
        return self.first - 1 + steps

    def after(self, method: str, last: int, ended: str) -> Place:
        """The place at the beginning of the next stage."""
        return Place(self.stages, (*self.done, Done(method, self.first, last, ended)), last + 1)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"stages_done": [asdict(each) for each in self.done], "stage_first": self.first}
