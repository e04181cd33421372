"""How every installed plugin is: whether it loads, what stands in its way, and what it should stop using."""

from __future__ import annotations

import sys
import warnings
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rlfactory_core.deprecation import RlfactoryDeprecationWarning
from rlfactory_core.errors import PluginConflictError, PluginError
from rlfactory_core.plugins.discovery import PluginEntry, is_disabled
from rlfactory_core.plugins.fingerprint import fingerprint
from rlfactory_core.plugins.fresh_process import differences
from rlfactory_core.plugins.loading import DEFAULT_API
from rlfactory_core.plugins.registry import BUILTIN, Registry

State = Literal["ok", "broken", "disabled"]


@dataclass(frozen=True, slots=True)
class Health:
    """Of one plugin."""

    entry: PluginEntry
    state: State
    api: str | None  # the versions of the plugin API that it speaks; None: it could not be asked
    error: str = ""  # why it is broken
    traceback: str = ""
    deprecated: tuple[str, ...] = ()  # what it uses while it is loaded, and where
    fingerprint: str = ""  # of its files; empty where it is not loaded
    worker: str = ""  # why a worker would refuse it


@dataclass(frozen=True, slots=True)
class Examination:
    """Of all of them together."""

    plugins: tuple[Health, ...]
    conflicts: tuple[PluginConflictError, ...]  # names that several plugins give
    core: str  # why a worker would refuse the core itself


def examine() -> Examination:
    """Load every installed plugin that is not disabled, here and in a fresh process."""
    registry = Registry()
    deprecated = {entry: _load(registry, entry) for entry in registry.entries if not is_disabled(entry)}
    refused = differences(registry.fingerprints())
    broken = {item.entry: item for item in registry.broken}

    def health(entry: PluginEntry) -> Health:
        if entry not in deprecated:
            return Health(entry, "disabled", None)
        if entry in broken:
            found = broken[entry]
            return Health(entry, "broken", _api(entry), str(found.error), found.traceback, deprecated[entry])
        mark = fingerprint(entry)
        worker = refused.get(mark.plugin, "")
        return Health(entry, "ok", _api(entry), "", "", deprecated[entry], mark.digest, worker)

    plugins = tuple(map(health, registry.entries))
    return Examination(plugins, registry.conflicts(), refused.get(BUILTIN.qualified, ""))


def _load(registry: Registry, entry: PluginEntry) -> tuple[str, ...]:
    """Try it; the deprecated names that it used on the way."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RlfactoryDeprecationWarning)
        with redirect_stdout(sys.stderr), suppress(PluginError):  # the registry keeps what is broken
            registry.load(entry.qualified)
    ours = [item for item in said if issubclass(item.category, RlfactoryDeprecationWarning)]
    return tuple(f"{item.message} ({Path(item.filename).name}:{item.lineno})" for item in ours)


def _api(entry: PluginEntry) -> str | None:
    """What its module says, also where that is why it was refused."""
    module = sys.modules.get(entry.module)
    return None if module is None else str(getattr(module, "RLFACTORY_API", DEFAULT_API))
