"""Fingerprints of plugins. Two machines compare them to make sure that they run the same code.

A fingerprint is the version and a hash of each file, because an editable install keeps its version when files change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rlfactory_core.errors import PluginError
from rlfactory_core.plugins.discovery import PluginEntry


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The identity of one plugin, which a driver sends to its workers; ``asdict`` makes plain data of it."""

    plugin: str  # for `Registry.load`
    distribution: str
    version: str
    files: Mapping[str, str]  # path relative to the package's parent -> SHA-256 in hex

    @property
    def digest(self) -> str:
        """A hash of the whole fingerprint, 16 hex digits."""
        lines = [self.distribution, self.version, *(f"{name} {self.files[name]}" for name in sorted(self.files))]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def changed_files(self, other: Fingerprint) -> tuple[str, ...]:
        """The files that differ or that only one of the two has."""
        names = sorted({*self.files, *other.files})
        return tuple(name for name in names if self.files.get(name) != other.files.get(name))

    def difference(self, worker: Fingerprint) -> str | None:
        """The first difference on a worker, in words, or None. ``self`` is the driver's fingerprint."""
        ours, theirs = f"{self.distribution} {self.version}", f"{worker.distribution} {worker.version}"
        if ours != theirs:
            return f"the driver has {ours}, this worker {theirs}"
        for name in self.changed_files(worker):
            if name not in worker.files:
                return f"the file {name} is missing here"
            return f"the file {name} {'differs' if name in self.files else 'is not on the driver'}"
        return None


def fingerprint(entry: PluginEntry) -> Fingerprint:
    """Hash a one-file plugin, or every file of the package with the entry point's module."""
    files = {Path(entry.file).name: Path(entry.file)} if entry.file else _package_files(entry)
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    return Fingerprint(entry.qualified, entry.distribution, entry.version, hashes)


def _package_files(entry: PluginEntry) -> dict[str, Path]:
    """The files of the outermost package that is not a namespace shared with other distributions."""
    parts = entry.module.split(".")
    for depth in range(1, len(parts) + 1):
        spec = find_spec(".".join(parts[:depth]))
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        if not spec.submodule_search_locations:
            return {origin.name: origin}
        inside = {path.relative_to(origin.parent.parent): path for path in sorted(origin.parent.rglob("*"))}
        left_by_tools = [each for each in inside if any(part[0] == "." or part == "__pycache__" for part in each.parts)]
        return {each.as_posix(): path for each, path in inside.items() if each not in left_by_tools and path.is_file()}
    raise PluginError(f"The files of the plugin {entry} cannot be found: no package {parts[0]!r} can be imported.")
