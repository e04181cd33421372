"""What ``rlfactory doctor`` reports, line by line, and what the installed distributions say of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from packaging.requirements import Requirement

State = Literal["ok", "note", "missing", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report; only a ``problem`` makes the exit code 1."""

    state: State
    what: str
    detail: str


def installed(name: str) -> str | None:
    """The version of a distribution, or None where there is none of that name."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def fits(requirement: Requirement, found: str | None) -> bool:
    """Whether a version is one that the requirement allows; none at all counts as fitting."""
    return found is None or requirement.specifier.contains(found, prereleases=True)


def requirements_of(distribution: str, extra: str = "") -> list[Requirement]:
    """What an installed distribution requires on this machine: of its base, or only what one extra adds.

    Markers are evaluated and dropped, so that each item can be given to pip as it is.

    Raises:
        PackageNotFoundError: the distribution is not installed.
    """
    from packaging.requirements import Requirement

    items = [Requirement(line) for line in requires(distribution) or []]
    base = [item for item in items if item.marker is None or item.marker.evaluate({"extra": ""})]
    extras = [item for item in items if item not in base and item.marker and item.marker.evaluate({"extra": extra})]
    found = extras if extra else base
    for item in found:
        item.marker = None
    return found


def with_their_extras(requirements: Iterable[Requirement]) -> Iterator[Requirement]:
    """The requirements and, for ``verl[vllm]`` and the like, what the installed distribution's extras add to them."""
    seen: set[tuple[str, str]] = set()
    waiting = list(requirements)
    while waiting:
        item = waiting.pop(0)
        yield item
        for extra in sorted(item.extras):
            if installed(item.name) is None or (item.name, extra) in seen:
                continue
            seen.add((item.name, extra))
            waiting += requirements_of(item.name, extra)
