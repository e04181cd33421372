"""What one check found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check's verdict with its evidence.

    Args:
        name: the check's, such as ``leakage``.
        passed: None: it does not apply here, and the evidence says why.
        evidence: a sentence each: what was tried and seen, with numbers; where it failed also what to do.
        seconds: it took.
    """

    name: str
    passed: bool | None
    evidence: tuple[str, ...]
    seconds: float = 0.0
