"""Whether what a distribution requires is installed: for ``rlfactory doctor`` of the core, for ``plugins doctor`` of
plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import metadata

from rlfactory_core.engines.checks import Check, fits, installed, requirements_of, with_their_extras


def requirement_checks(distribution: str, purposes: Mapping[str, str] | None = None) -> Iterator[Check]:
    """A line for the base, which has to be met, and for each extra, which may be absent as a whole.

    Args:
        purposes: what each extra is for, of those that are to be told of; none: all that the distribution declares.

    Raises:
        PackageNotFoundError: the distribution is not installed.
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
    name = extra or "base"
    remedy = f"pip install '{distribution}{f'[{extra}]' if extra else ''}'"
    if (wrong and not absent) or (wrong + absent and not extra):
        return Check("problem", name, f"{', '.join(wrong + absent)}: {remedy}")
    if absent:  # versions that do not fit are then no fault: what brought them is something else
        use = f"; for {purpose}" if purpose else ""
        return Check("missing", name, f"{', '.join(wrong + absent)}{use}: {remedy}")
    return Check("ok", name, ", ".join(f"{item} {installed}" for item, installed in found.items()))
