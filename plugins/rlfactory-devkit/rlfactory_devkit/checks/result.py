"""The result of one check, and the evidence for it."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from pathlib import Path

import rlfactory_core
import rlfactory_devkit


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check's verdict with its evidence.

    The evidence is sentences that say what was tried and seen, with numbers, and what to do about a failure. Failures
    come first.
    """

    name: str  # such as ``leakage``
    passed: bool | None  # None if the check does not apply; then the evidence says why
    evidence: tuple[str, ...]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """One sentence of a check that is running."""

    text: str
    wrong: bool = False  # whether it makes the check fail


def seen(text: str) -> Evidence:
    """Evidence of something that went as it should."""
    return Evidence(text)


def wrong(text: str) -> Evidence:
    """Evidence that makes the check fail."""
    return Evidence(text, wrong=True)


def judged(problem: str, good: str) -> Evidence:
    """Evidence of what was tried: of the problem, if there is one."""
    return wrong(problem) if problem else seen(good)


class DoesNotApply(Exception):  # noqa: N818 - nothing went wrong
    """Raised by a check that has nothing to check; the text says why."""


_OURS = tuple(str(Path(each.__file__ or "").parent) for each in (rlfactory_core, rlfactory_devkit))
_LIBRARY = re.compile(r"/site-packages/|/python3\.[^/]*/")
_FRAMES = 3  # of the author's own code that are shown


def describe_error(error: BaseException) -> str:
    """The exception as a text, with the lines of the author's own code that it passed through."""
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*_OURS, "<")) and not _LIBRARY.search(frame.filename)
    ]
    lines = (f"\n{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[-_FRAMES:])
    return words + "".join(lines)
