"""Finds the installed plugins from entry-point metadata alone.

No plugin is imported here, and no heavy package, because ``rlfactory plugins list`` has to be fast.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from rlfactory_core.errors import MissingExtraError, PluginConflictError, PluginError, nearest

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


def is_disabled(entry: PluginEntry, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``RLFACTORY_DISABLE_PLUGINS`` names the plugin or its distribution."""
    names = {_canonical(name) for name in environ.get(DISABLE_VARIABLE, "").split(",") if name.strip()}
    return _canonical(entry.name) in names or _canonical(entry.distribution) in names


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
    of_distribution = [entry.name for entry in entries if _canonical(entry.distribution) == _canonical(spec)]
    if of_distribution:
        raise PluginError(f"'{spec}' is a distribution; its plugins are: {', '.join(of_distribution)}.")
    raise PluginError(f"No plugin '{spec}' is installed. {nearest(spec, (entry.name for entry in entries))}")


def matching(entries: Sequence[PluginEntry], spec: str) -> list[PluginEntry]:
    """The plugins that ``NAME`` or ``DISTRIBUTION:NAME`` can mean, including disabled ones."""
    distribution, _, name = spec.rpartition(":")
    return [entry for entry in entries if entry.name == name and is_from(entry, distribution)]


def separate_plugin(name: str, what: str) -> str:
    """``rlfactory-NAME:NAME``, a plugin with a part of rlfactory itself, which is installed separately.

    Args:
        what: the part, as the beginning of a sentence.

    Raises:
        MissingExtraError: it is not installed.
    """
    distribution = f"rlfactory-{name}"
    if not matching(discover(), f"{distribution}:{name}"):
        raise MissingExtraError(
            f"{what} is in the plugin {distribution}, which is not installed: python -m pip install {distribution}"
        )
    return f"{distribution}:{name}"


def is_from(entry: PluginEntry, distribution: str) -> bool:
    """Whether the plugin comes from a distribution, in any spelling; always True for an empty name."""
    return not distribution or _canonical(entry.distribution) == _canonical(distribution)


def conflict(kind: str, name: str, givers: Sequence[PluginEntry]) -> PluginConflictError:
    """The error for a name that several distributions register; it says how to choose one."""
    names = " and ".join(f"{entry.distribution} {entry.version}".strip() for entry in givers)
    choices = " or ".join(f"'{entry.distribution}:{name}'" for entry in givers)
    return PluginConflictError(
        f"{names} both give the {kind} '{name}'. Name the one you mean: {choices}; or uninstall or disable the other "
        f"({DISABLE_VARIABLE}={givers[-1].distribution})."
    )


def _entry(point: EntryPoint) -> PluginEntry:
    distribution = point.dist
    if distribution is None:  # metadata without a name
        return PluginEntry(point.name, "unknown", "", point.value)
    metadata = distribution.metadata
    summary = (metadata.get_all("Summary") or [""])[0]
    return PluginEntry(point.name, metadata["Name"], distribution.version, point.value, summary)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
