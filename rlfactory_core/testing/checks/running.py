"""Runs checks one after the other: whatever a task does to one of them, the others go on."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence

from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.testing.checks import CHECKS
from rlfactory_core.testing.checks.result import CheckResult, DoesNotApply, Evidence, wrong
from rlfactory_core.testing.checks.subject import Subject
from rlfactory_core.testing.checks.telling import told


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
    started, folder = time.perf_counter(), os.getcwd()
    found: list[Evidence] = []
    applies = usable = True
    try:
        for evidence in _quietly(CHECKS[name](subject)):
            found.append(evidence)  # noqa: PERF402 - what was found before an exception counts, too
    except DoesNotApply as reason:
        found.append(Evidence(str(reason)))
        applies = False
    except Exception as error:  # noqa: BLE001 - the boundary to the task's code, all of which runs in here
        found.append(wrong(told(error)))
        usable = False
    found += _moved(folder)
    if not usable:
        subject.renew()
    bad = [each.text for each in found if each.wrong]
    good = [each.text for each in found if not each.wrong]
    passed = not bad if applies or bad else None
    return CheckResult(name, passed, (*bad, *good), time.perf_counter() - started)


def _moved(folder: str) -> list[Evidence]:
    """And back: the plugin's own file may be given relative to it."""
    now = os.getcwd()
    if now == folder:
        return []
    os.chdir(folder)
    return [
        wrong(
            f"the working directory has become {now}. It belongs to all that runs in the process, paths of the run "
            "among it: use absolute paths, or the cwd of a process of your own."
        )
    ]


def _quietly(found: Iterator[Evidence]) -> Iterator[Evidence]:
    """Without the warnings that a run logs: most of them are what a check is about."""
    log = logging.getLogger("rlfactory_core")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield from found
    finally:
        log.setLevel(level)
