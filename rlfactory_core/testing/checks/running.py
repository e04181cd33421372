"""Runs checks one after the other: whatever a task does to one of them, the others go on."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import rlfactory_core
from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.testing.checks import CHECKS
from rlfactory_core.testing.checks.result import CheckResult, DoesNotApply, Evidence, wrong
from rlfactory_core.testing.checks.subject import Subject

_CORE = str(Path(rlfactory_core.__file__).parent)
_FRAMES = 3  # of the author's own code that are shown


def chosen(only: Sequence[str]) -> tuple[str, ...]:
    """The names of the checks to run, in their order; all where none is named.

    Raises:
        UsageError: there is no such check.
    """
    unknown = [name for name in only if name not in CHECKS]
    if unknown:
        raise UsageError(f"There is no check '{unknown[0]}'. {nearest(unknown[0], CHECKS)}")
    return tuple(name for name in CHECKS if not only or name in only)


def run_checks(subject: Subject, only: Sequence[str] = ()) -> Iterator[CheckResult]:
    """Each result as soon as it is there.

    Raises:
        UsageError, BackendError: the task cannot be opened here, so that nothing can be said of it.
    """
    subject.open()
    for name in chosen(only):
        yield run_check(name, subject)


def run_check(name: str, subject: Subject) -> CheckResult:
    """One of `CHECKS`, on its own."""
    started = time.perf_counter()
    found: list[Evidence] = []
    applies = True
    try:
        for evidence in CHECKS[name](subject):
            found.append(evidence)  # noqa: PERF402 - what was found before an exception counts, too
    except DoesNotApply as reason:
        found.append(Evidence(str(reason)))
        applies = False
    except Exception as error:  # noqa: BLE001 - the boundary to the task's code, all of which runs in here
        found.append(wrong(told(error)))
        subject.renew()
    bad = [each.text for each in found if each.wrong]
    good = [each.text for each in found if not each.wrong]
    passed = not bad if applies or bad else None
    return CheckResult(name, passed, (*bad, *good), time.perf_counter() - started)


def told(error: BaseException) -> str:
    """An exception in words, with the lines of the author's own code that it came through."""
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_CORE, "<")) and not _is_library(frame.filename)
    ]
    return words + "".join(
        f"\n{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[-_FRAMES:]
    )


def _is_library(filename: str) -> bool:
    parts = Path(filename).parts
    return "site-packages" in parts or any(part.startswith("python3.") for part in parts[:-1])
