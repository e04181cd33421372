"""What has to hold of a task before it is worth a GPU: one file a check.

A check is a function of the `Subject` that yields `Evidence`; it may raise `DoesNotApply`, and what the task raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rlfactory_core.testing.checks import (
    bounds,
    cancellation,
    close,
    determinism,
    faults,
    floor,
    isolation,
    leakage,
    oracle,
    pickling,
    splits,
    tokens,
)
from rlfactory_core.testing.checks.result import Evidence
from rlfactory_core.testing.checks.subject import Subject

Check = Callable[[Subject], Iterator[Evidence]]

CHECKS: Mapping[str, Check] = {
    "oracle": oracle.check,
    "floor": floor.check,
    "determinism": determinism.check,
    "leakage": leakage.check,
    "isolation": isolation.check,
    "cancellation": cancellation.check,
    "faults": faults.check,
    "tokens": tokens.check,
    "pickling": pickling.check,
    "splits": splits.check,
    "bounds": bounds.check,
    "close": close.check,  # last: it closes the task that the others have played
}
