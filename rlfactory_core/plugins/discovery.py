"""Finds the installed plugins from entry-point metadata alone.

No plugin is imported here, and no heavy package, because ``rlfactory plugins list`` has to be fast.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from packaging.utils import canonicalize_name

from rlfactory_core.errors import PluginConflictError, PluginError, nearest

GROUP = "rlfactory"
DISABLE_VARIABLE = "RLFACTORY_DISABLE_PLUGINS"


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """A plugin before it is imported."""

    name: str  # of the entry point
    distribution: str  # its name for pip; a one-file plugin's file name
    version: str
    module: str
    summary: str = ""
    file: str | None = None  # a one-file plugin's absolute path

    @property
    def qualified(self) -> str:
        """The value of ``--plugin`` that names this plugin and no other."""
        return self.file or f"{self.distribution}:{self.name}"

    def __str__(self) -> str:
        return f"'{self.name}' ({f'{self.distribution} {self.version}'.strip()})"


def discover() -> tuple[PluginEntry, ...]:
    """Every installed plugin by name, including disabled ones.

    If a distribution is installed twice on the path, the first installation counts, as for imports.
    """
    found = {_entry(point) for point in entry_points(group=GROUP)}
    return tuple(sorted(found, key=lambda entry: (entry.name, entry.distribution)))


def is_disabled(entry: PluginEntry) -> bool:
    """Whether ``RLFACTORY_DISABLE_PLUGINS`` names the plugin or its distribution."""
    names = set(map(canonicalize_name, os.environ.get(DISABLE_VARIABLE, "").replace(" ", "").split(",")))
    return not names.isdisjoint(map(canonicalize_name, (entry.name, entry.distribution)))


def choose(entries: Sequence[PluginEntry], spec: str) -> PluginEntry:
    """The one plugin that ``NAME`` or ``DISTRIBUTION:NAME`` means.

    Raises:
        PluginConflictError: several distributions have a plugin of that name.
        PluginError: none has, or it is disabled.
    """
    matches = matching(entries, spec)
    enabled = [entry for entry in matches if not is_disabled(entry)]
    if len(enabled) == 1:
        return enabled[0]
    if enabled:
        raise conflict("plugin", enabled[0].name, enabled)
    if matches:
        raise PluginError(f"The plugin {matches[0]} is disabled by {DISABLE_VARIABLE}={os.environ[DISABLE_VARIABLE]}.")
    of_distribution = [
        entry.name for entry in entries if canonicalize_name(entry.distribution) == canonicalize_name(spec)
    ]
    if of_distribution:
        raise PluginError(f"'{spec}' is a distribution; its plugins are: {', '.join(of_distribution)}.")
    raise PluginError(f"No plugin '{spec}' is installed. {nearest(spec, (entry.name for entry in entries))}")


def matching(entries: Sequence[PluginEntry], spec: str) -> list[PluginEntry]:
    """The plugins that ``NAME`` or ``DISTRIBUTION:NAME`` can mean, including disabled ones."""
    distribution, _, name = spec.rpartition(":")
    return [entry for entry in entries if entry.name == name and is_from(entry, distribution)]


def is_from(entry: PluginEntry, distribution: str) -> bool:
    """Whether the plugin comes from a distribution, in any spelling; always True for an empty name."""
    return not distribution or canonicalize_name(entry.distribution) == canonicalize_name(distribution)


def conflict(kind: str, name: str, givers: Sequence[PluginEntry]) -> PluginConflictError:
    """The error for a name that several distributions register; it says how to choose one."""
    names = " and ".join(f"{entry.distribution} {entry.version}".strip() for entry in givers)
    choices = " or ".join(f"'{entry.distribution}:{name}'" for entry in givers)
    return PluginConflictError(
        f"{names} both give the {kind} '{name}'. Name the one you mean: {choices}; or uninstall or disable the other "
        f"({DISABLE_VARIABLE}={givers[-1].distribution})."
    )


def _entry(point: EntryPoint) -> PluginEntry:
    if point.dist is None:  # metadata without a name
        return PluginEntry(point.name, "unknown", "", point.value)
    summary = (point.dist.metadata.get_all("Summary") or [""])[0]
    return PluginEntry(point.name, point.dist.name, point.dist.version, point.value, summary)
