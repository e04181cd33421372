"""The campaign's run: a few small steps that give the same metrics each time, in a process of their own."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from runs import TINY_TASK, Outcome, finish, repeatable, start

STEPS = 6
COMMAND = (
    "run", "--plugin", TINY_TASK, "eval.limit=4", "eval.every=0", "train.prompts_per_step=4", "train.group_size=4",
    "train.workers=1", "rollout.deterministic=true", "checkpoint.every=1", "checkpoint.keep=3",
)  # fmt: skip


def trials(number: int) -> range:
    """The seeds of a costly kind of trial: one outside of the nox session ``campaign``."""
    return range(number if os.environ.get("RLFACTORY_CAMPAIGN") else 1)


def command(out: Path, steps: int = STEPS) -> tuple[object, ...]:
    return (*COMMAND, "--steps", steps, "--out", out)


def resumed(run: Path, steps: int = STEPS) -> Outcome:
    """Go on with a run to its end, in a process of its own."""
    return finish(start("run", "--resume", run, "--steps", steps))


@dataclass(frozen=True)
class Reference:
    """A whole run that nothing interrupted."""

    folder: Path
    seconds: float  # of the process

    @classmethod
    def make(cls, folder: Path) -> Reference:
        started = time.monotonic()
        outcome = finish(start(*command(folder)))
        assert outcome.code == 0, outcome.out
        if "the warm-started model is in the cache" not in outcome.out:  # building it took a part of the time
            started = time.monotonic()
            again = finish(start(*command(folder.with_name("timed"))))
            assert again.code == 0, again.out
        return cls(folder, time.monotonic() - started)

    def is_equalled_by(self, run: Path) -> bool:
        """Whether metrics and weights are those of the reference, to the bit."""
        weights = [each / "checkpoints" / "latest" / "model.safetensors" for each in (self.folder, run)]
        return repeatable(run) == repeatable(self.folder) and weights[0].read_bytes() == weights[1].read_bytes()


def nothing_saved(outcome: Outcome) -> bool:
    """Whether a resume says that the run ended before its first checkpoint; then nothing can be lost."""
    said = " ".join(outcome.out.split())
    return outcome.code == 2 and ("There is no checkpoint" in said or "no run at" in said)
