"""What one check found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check's verdict with its evidence.

    Args:
        name: the check's, such as ``leakage``.
        passed: None: it does not apply here, and the evidence says why.
        evidence: a sentence each: what was tried and seen, with numbers; where it failed also what to do. What was
            found wrong stands first.
        seconds: it took.
    """

    name: str
    passed: bool | None
    evidence: tuple[str, ...]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """One sentence of a check under way.

    Args:
        wrong: it makes the check fail.
    """

    text: str
    wrong: bool = False


def seen(text: str) -> Evidence:
    """What was tried, and went as it should."""
    return Evidence(text)


def wrong(text: str) -> Evidence:
    """What is to be mended."""
    return Evidence(text, wrong=True)


class DoesNotApply(Exception):  # noqa: N818 - nothing went wrong
    """Raised by a check that has nothing to check; the text says why."""
