"""The checks of ``rlfactory plugins check``, one in each file, and how they are run.

A check takes the `CheckContext` and yields `Evidence`. It may raise `DoesNotApply`, and any exception of the task. The
other checks run all the same.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from rlfactory_core.errors import UsageError, nearest
from rlfactory_devkit.checks import (
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
    stored,
    tokens,
)
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import CheckResult, DoesNotApply, Evidence, describe_error, wrong

_MODULES = (
    *(oracle, floor, determinism, leakage, isolation, cancellation, faults, tokens, pickling, splits, bounds, stored),
    close,  # it comes last, because it closes the task that the others use
)
CHECKS: Mapping[str, Callable[[CheckContext], Iterator[Evidence]]] = {
    module.__name__.rpartition(".")[2]: module.check for module in _MODULES
}


def chosen(only: Sequence[str], *, run: bool = False) -> tuple[str, ...]:
    """The names of the checks to run, in their order; if ``only`` is empty all of them, `stored` if a run is named."""
    unknown = [name for name in only if name not in CHECKS]
    if unknown:
        raise UsageError(f"There is no check '{unknown[0]}'. {nearest(unknown[0], CHECKS)}")
    wanted = only or [name for name in CHECKS if run or name != "stored"]
    return tuple(name for name in CHECKS if name in wanted)


def run_checks(context: CheckContext, only: Sequence[str] = ()) -> Iterator[CheckResult]:
    """Yields each result as soon as the check has ended; raises as `CheckContext.open`."""
    context.open()
    for name in chosen(only, run=bool(context.options.run)):
        yield run_check(name, context)


def run_check(name: str, context: CheckContext) -> CheckResult:
    """Run one of `CHECKS`, without the warnings that a run logs, because checks provoke most of them."""
    started, folder, log = time.perf_counter(), os.getcwd(), logging.getLogger("rlfactory_core")
    found: list[Evidence] = []
    applies = usable = True
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        for evidence in CHECKS[name](context):
            found.append(evidence)  # noqa: PERF402 - keeps the evidence that came before an exception
    except DoesNotApply as reason:
        found.append(Evidence(str(reason)))
        applies = False
    except Exception as error:  # noqa: BLE001 - the boundary to the task's code, all of which runs in here
        found.append(wrong(describe_error(error)))
        usable = False
    finally:
        log.setLevel(level)
    if (now := os.getcwd()) != folder:
        os.chdir(folder)  # the plugin's path may be relative to it
        found.append(
            wrong(
                f"the working directory has become {now}. The whole process shares it, and a run's paths may be "
                "relative to it: use absolute paths, or the cwd argument of a subprocess."
            )
        )
    if not usable:
        context.renew()
    bad = [each.text for each in found if each.wrong]
    good = [each.text for each in found if not each.wrong]
    return CheckResult(name, not bad if applies or bad else None, (*bad, *good), time.perf_counter() - started)
