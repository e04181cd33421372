"""Which files belong to the packages that the code may import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement


def files_of(modules: Sequence[str]) -> list[str]:
    """The files and directories of the packages with these modules, and of all that they require.

    Args:
        modules: importable names; those of the standard library have no files here.
    """
    known = packages_distributions()
    tops = {module.partition(".")[0] for module in modules}
    left = [name for top in sorted(tops) for name in known.get(top, ())]
    found: dict[str, Distribution] = {}
    while left:
        name = left.pop()
        if name not in found:
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:  # a requirement for another platform, or an optional one
                continue
            left += _required(found[name])
    files = {path for one in found.values() for path in _files(one)}
    return sorted(files | {path for top in tops & known.keys() for path in _places(top)})


def _required(package: Distribution) -> Iterator[str]:
    for text in package.requires or ():
        asked = Requirement(text)
        if asked.marker is None or asked.marker.evaluate({"extra": ""}):
            yield asked.name


def _files(package: Distribution) -> Iterator[str]:
    """Its entries in the folder of packages; commands beside the folder are none."""
    for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
        yield str(Path(str(package.locate_file(top))).resolve())


def _places(top: str) -> Iterator[str]:
    """Where a package lies that is installed in place (editable)."""
    spec = find_spec(top)
    if spec is not None:
        yield from spec.submodule_search_locations or filter(None, [spec.origin])
