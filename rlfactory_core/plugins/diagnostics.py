"""The lines of ``rlfactory doctor``, and whether the requirements of installed distributions are met."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["Check", "DoctorRequest", "fits", "installed", "requirements_of", "with_their_extras"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report; only a ``problem`` makes the exit code 1."""

    state: Literal["ok", "note", "missing", "problem"]
    what: str
    detail: str


@dataclass(frozen=True, slots=True)
class DoctorRequest:
    """The options of ``rlfactory doctor``."""

    device: str | None  # cpu or cuda; None: what the machine has
    install: bool  # first install what is missing
    say: Callable[[str], None]  # shows a line to the user before the report


def installed(name: str) -> str | None:
    """The version of a distribution, or None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def fits(requirement: Requirement, found: str | None) -> bool:
    """Whether the requirement allows a version; True if nothing is installed."""
    return found is None or requirement.specifier.contains(found, prereleases=True)


def requirements_of(distribution: str, extra: str = "") -> list[Requirement]:
    """The requirements of an installed distribution on this machine: those of its base, or those that one extra adds.

    Markers are evaluated and dropped, so that each item can be given to pip.

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
    """The requirements, and those of the extras that they name, as in ``package[extra]``."""
    seen: set[tuple[str, str]] = set()
    waiting = list(requirements)
    for item in waiting:  # it grows
        yield item
        new = {(item.name, extra) for extra in item.extras if installed(item.name)} - seen
        seen |= new
        waiting += [each for name, extra in sorted(new) for each in requirements_of(name, extra)]


def requirement_checks(distribution: str, purposes: Mapping[str, str] | None = None) -> Iterator[Check]:
    """A line for the base, which has to be complete, and for each extra, which may be missing as a whole.

    Args:
        purposes: what each extra is for; only these extras are reported. None: all extras of the distribution, which
            has to be installed.
    """
    yield _group(distribution, "", "everything")
    for extra in purposes if purposes is not None else metadata(distribution).get_all("Provides-Extra") or []:
        if any(item.name != distribution for item in requirements_of(distribution, extra)):  # else a name for others
            yield _group(distribution, extra, (purposes or {}).get(extra, ""))


def _group(distribution: str, extra: str, purpose: str) -> Check:
    requirements = list(with_their_extras(requirements_of(distribution, extra)))
    found = {item.name: installed(item.name) for item in requirements}
    wrong = [f"{i.name} {found[i.name]} (not {i.specifier})" for i in requirements if not fits(i, found[i.name])]
    absent = [item for item, installed in found.items() if installed is None]
    lacking, name = ", ".join(wrong + absent), extra or "base"
    remedy = f"pip install '{distribution}{f'[{extra}]' if extra else ''}'"
    if (wrong and not absent) or (lacking and not extra):
        return Check("problem", name, f"{lacking}: {remedy}")
    if absent:  # then the extra is not installed, and wrong versions belong to something else
        return Check("missing", name, f"{lacking}{f'; for {purpose}' if purpose else ''}: {remedy}")
    return Check("ok", name, ", ".join(f"{item} {installed}" for item, installed in found.items()))
