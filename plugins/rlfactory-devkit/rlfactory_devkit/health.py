"""Examines every installed plugin. Does it load, here and in a fresh process?"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from typing import Literal

from rlfactory_core.errors import PluginConflictError, PluginError
from rlfactory_core.plugins.discovery import PluginEntry, is_disabled
from rlfactory_core.plugins.fingerprint import Fingerprint, fingerprint
from rlfactory_core.plugins.loading import DEFAULT_API
from rlfactory_core.plugins.registry import BUILTIN, Registry

State = Literal["ok", "broken", "disabled"]


@dataclass(frozen=True, slots=True)
class Health:
    """The state of one plugin."""

    entry: PluginEntry
    state: State
    api: str | None  # the versions of the plugin API that it supports; None: unknown
    error: str = ""  # why it is broken
    traceback: str = ""
    fingerprint: str = ""  # of its files; empty if it is not loaded
    worker: str = ""  # why a worker would refuse it


@dataclass(frozen=True, slots=True)
class Examination:
    """The state of all plugins."""

    plugins: tuple[Health, ...]
    conflicts: tuple[PluginConflictError, ...]  # names that several plugins register
    core: str  # why a worker would refuse the core itself


def examine() -> Examination:
    """Load every installed plugin that is not disabled, here and in a fresh process."""
    registry = Registry()
    loaded = [entry for entry in registry.entries if not is_disabled(entry)]
    for entry in loaded:
        with redirect_stdout(sys.stderr), suppress(PluginError):  # the registry keeps what is broken
            registry.load(entry.qualified)
    refused = differences(registry.fingerprints())
    broken = {item.entry: item for item in registry.broken}

    def health(entry: PluginEntry) -> Health:
        if entry not in loaded:
            return Health(entry, "disabled", None)
        if entry in broken:
            found = broken[entry]
            return Health(entry, "broken", _api(entry), str(found.error), found.traceback)
        mark = fingerprint(entry)
        worker = refused.get(mark.plugin, "")
        return Health(entry, "ok", _api(entry), "", "", mark.digest, worker)

    plugins = tuple(map(health, registry.entries))
    return Examination(plugins, registry.conflicts(), refused.get(BUILTIN.qualified, ""))


def _api(entry: PluginEntry) -> str | None:
    """The ``RLFACTORY_API`` of its module, also if that is why it was refused."""
    module = sys.modules.get(entry.module)
    return None if module is None else str(getattr(module, "RLFACTORY_API", DEFAULT_API))


DEADLINE_S = 120.0


def differences(fingerprints: Iterable[Fingerprint], deadline_s: float = DEADLINE_S) -> Mapping[str, str]:
    """Why a fresh process, such as a worker, refuses plugins, by qualified name.

    It refuses a plugin that is only found from the current working directory, or that writes into its own package when
    it is imported.
    """
    expected = list(fingerprints)
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(  # noqa: S603 - this Python and this module
                [sys.executable, "-m", __name__],
                input=json.dumps([asdict(item) for item in expected]),
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=deadline_s,
                check=False,
            )
    except subprocess.TimeoutExpired:
        return {item.plugin: f"A fresh process did not load the plugins within {deadline_s:g} s." for item in expected}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {item.plugin: f"A fresh process could not look for the plugins: {last}" for item in expected}
    found: dict[str, str] = json.loads(done.stdout)
    return found


def main() -> None:
    """The fresh process: it reads fingerprints as JSON, and writes which of them it refuses and why."""
    refused = {}
    with redirect_stdout(sys.stderr):  # a plugin may print when it is imported
        registry = Registry()
        for item in json.load(sys.stdin):
            try:
                registry.load_for_worker([Fingerprint(**item)])
            except PluginError as error:
                refused[item["plugin"]] = str(error)
    sys.stdout.write(json.dumps(refused))


if __name__ == "__main__":
    main()
