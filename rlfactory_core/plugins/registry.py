"""Finds the parts that a run names, and the plugin that each comes from.

Only plugins that a run needs are loaded: its own, the built-in one, and those of other names in the configuration.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlfactory_core.errors import ConfigError, PluginConflictError, PluginError, nearest
from rlfactory_core.plugins.discovery import PluginEntry, choose, conflict, discover, is_disabled, is_from, matching
from rlfactory_core.plugins.fingerprint import Fingerprint, fingerprint
from rlfactory_core.plugins.loading import (
    Kind,
    LoadedPlugin,
    Registration,
    file_entry,
    is_file,
    load_plugin,
    require_registrations,
    reward_in_file,
    section_class,
    words,
)
from rlfactory_core.settings import EngineSection, RunSections, Section, validate_section
from rlfactory_core.version import __version__

INSTALLED_WITH = {
    ("verl", "engine"): "'rlfactory-core[verl]'",
    ("agents", "agent_player"): "'rlfactory-core[agents]'",
    ("mcp", "tool_source"): "'rlfactory-core[mcp]'",
    ("judge", "reward_scorer"): "rlfactory-judge",
}
"""Names that the documents use as a part of rlfactory, and what to install for them."""

BUILTIN = PluginEntry("builtin", "rlfactory-core", __version__, "rlfactory_core.builtin", "What the core itself gives")


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """A plugin that cannot be loaded; this is an error only for a run that names it."""

    entry: PluginEntry
    error: PluginError

    @property
    def traceback(self) -> str:
        """The traceback of its failure."""
        cause = self.error.__cause__ or self.error
        return "".join(traceback.format_exception(type(cause), cause, cause.__traceback__))


class Registry:
    """Loads plugins by name, remembers the broken ones, and finds factories. By default it has what is installed."""

    def __init__(self, entries: Sequence[PluginEntry] | None = None) -> None:
        self.entries = tuple(discover() if entries is None else entries)
        self._loaded: dict[PluginEntry, LoadedPlugin] = {BUILTIN: load_plugin(BUILTIN)}
        self._broken: dict[PluginEntry, BrokenPlugin] = {}
        self._used: dict[PluginEntry, None] = {BUILTIN: None}

    @property
    def broken(self) -> tuple[BrokenPlugin, ...]:
        return tuple(self._broken.values())

    def load(self, spec: str) -> LoadedPlugin:
        """Load a plugin by ``NAME``, ``DISTRIBUTION:NAME`` or file.

        Raises:
            PluginError: it is unknown (the message has the nearest name), disabled or broken.
            PluginConflictError: several distributions have a plugin of that name.
            PluginVersionError: it needs another version of the plugin API.
        """
        plugin = self._load(spec)
        require_registrations(plugin)
        return plugin

    def _load(self, spec: str) -> LoadedPlugin:
        """As `load`; of a file only a reward may be used, so it need not register anything."""
        entry = self._entry(spec)
        self._try(entry)
        if entry in self._broken:
            raise self._broken[entry].error
        self._used[entry] = None
        return self._loaded[entry]

    def task(self, spec: str) -> Registration:
        """The task that ``--plugin SPEC`` runs; raises what `load` raises.

        It is the plugin's task of the plugin's name, or its only one, or a task of that name in any plugin.
        """
        if not is_file(spec) and not matching(self.entries, spec) and (others := self._search(spec, ("task",))):
            return self._only(others)
        plugin = self.load(spec)
        tasks = {item.name: item for item in plugin.registrations if item.kind == "task"}
        if not tasks:
            raise PluginError(f"The plugin {plugin.entry} has no task to run: it registers only other parts.")
        if len(tasks) > 1 and plugin.entry.name not in tasks:
            raise PluginError(
                f"The plugin {plugin.entry} has several tasks. Choose one: --plugin {' or '.join(tasks)}."
            )
        return tasks.get(plugin.entry.name) or next(iter(tasks.values()))

    def find(self, name: str, *kinds: Kind) -> Registration:
        """The registration of ``NAME`` or ``DISTRIBUTION:NAME`` among these kinds; of a reward also ``FILE.py:NAME``.

        Searches the plugins in use, then the loaded ones, then the plugin of that name, then all others.

        Raises:
            PluginConflictError: several distributions register the name.
            PluginError: none does; the message has the nearest name and the plugins that could not be loaded.
        """
        if found := self._search(name, kinds):
            return self._only(found)
        known = (item.name for plugin in self._loaded.values() for item in plugin.registrations if item.kind in kinds)
        message = f"No {' or '.join(words(kind) for kind in kinds)} '{name}' is registered. "
        package = next((INSTALLED_WITH[name, kind] for kind in kinds if (name, kind) in INSTALLED_WITH), None)
        message += f"Install it: python -m pip install {package}" if package else nearest(name, known)
        if self._broken:
            failed = ", ".join(str(entry) for entry in self._broken)
            message += f" Not searched, because they cannot be loaded: {failed}; see `rlfactory plugins doctor`."
        raise PluginError(message)

    def registered(self, kind: Kind) -> tuple[Registration, ...]:
        """The registrations of a kind in the plugins in use and in the built-in one."""
        return tuple(item for entry in self._used for item in self._loaded[entry].registrations if item.kind == kind)

    def installed(self, kind: Kind) -> tuple[Registration, ...]:
        """The registrations of a kind in all plugins that can be loaded."""
        return tuple(item for plugin in self.load_all() for item in plugin.registrations if item.kind == kind)

    def engine_sections(self, *, installed: bool = False) -> dict[str, type[EngineSection]]:
        """The keys that engines add to the configuration, by name: engines of the plugins in use, or all installed."""
        items = self.installed("config_section") if installed else self.registered("config_section")
        found = {item.name: section_class(item) for item in items}
        return {name: section for name, section in found.items() if issubclass(section, EngineSection)}

    def sections(self, config: RunSections) -> dict[str, Section]:
        """The sections under ``plugins`` in a configuration, validated, and the defaults of other plugins in use.

        A plugin whose section is named there is in use from then on. Sections of engines that do not run the
        configuration are left out.

        Raises:
            PluginError: no plugin registers such a section; the message has the nearest name.
            PluginConflictError: several do.
            ConfigError: a key is unknown, or a value does not fit.
        """
        given: dict[str, tuple[Registration, Mapping[str, Any]]] = {}
        for name, data in config.plugins.items():
            item = self.find(name, "config_section")
            if item.name in given:
                raise ConfigError(f"plugins: the section '{item.name}' is given twice, once as '{name}'.")
            given[item.name] = item, data
        for item in self.registered("config_section"):
            other, _ = given.setdefault(item.name, (item, {}))
            if other.plugin != item.plugin:
                raise conflict(words(item.kind), item.name, [other.plugin, item.plugin])
        engines = self.engine_sections()
        return {
            name: validate_section(section_class(item), data, prefix=name if name in engines else f"plugins.{name}")
            for name, (item, data) in given.items()
            if name == config.engine_name or name not in engines
        }

    def load_all(self) -> tuple[LoadedPlugin, ...]:
        """Try to load every plugin that is not disabled; those that fail are in `broken`."""
        for entry in self.entries:
            if not is_disabled(entry):
                self._try(entry)
        return tuple(self._loaded.values())

    def conflicts(self) -> tuple[PluginConflictError, ...]:
        """For each name that several loaded plugins register, the error that a run with that name would get."""
        givers: dict[tuple[Kind | Literal["plugin"], str], list[PluginEntry]] = {}
        for plugin in self._loaded.values():
            givers.setdefault(("plugin", plugin.entry.name), []).append(plugin.entry)
            for item in plugin.registrations:
                givers.setdefault((item.kind, item.name), []).append(plugin.entry)
        return tuple(conflict(words(kind), name, found) for (kind, name), found in givers.items() if len(found) > 1)

    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """The fingerprints of the core and of every plugin in use, for ``plugins.lock.json`` and for workers."""
        return tuple(fingerprint(entry) for entry in self._used)

    def load_for_worker(self, fingerprints: Iterable[Fingerprint]) -> None:
        """In a worker process: load the driver's plugins from this machine, and refuse those that differ.

        It has to be called before objects of a one-file plugin are unpickled.

        Raises:
            PluginError: a plugin is missing, broken or differs; the message says which file.
        """
        for driver in fingerprints:
            plugin = self._load(driver.plugin)
            if difference := driver.difference(fingerprint(plugin.entry)):
                raise PluginError(
                    f"The plugin {plugin.entry} is not the driver's: {difference}. "
                    "Install the same version, with the same files, on every machine of the run."
                )

    def _entry(self, spec: str) -> PluginEntry:
        if spec in (BUILTIN.name, BUILTIN.qualified):
            return BUILTIN
        return file_entry(spec) if is_file(spec) else choose(self.entries, spec)

    def _try(self, entry: PluginEntry) -> None:
        if entry in self._loaded or entry in self._broken:
            return
        try:
            plugin = load_plugin(entry)
            if not entry.file:
                require_registrations(plugin)
            self._loaded[entry] = plugin
        except PluginError as error:
            self._broken[entry] = BrokenPlugin(entry, error)

    def _search(self, name: str, kinds: Sequence[Kind]) -> list[Registration]:
        file, _, member = name.rpartition(":")
        if is_file(file) and "reward_scorer" in kinds:
            if not Path(file).expanduser().is_file():
                raise PluginError(f"--reward {name}: there is no file {Path(file).expanduser().absolute()}.")
            return [reward_in_file(self._load(file), member)]
        if found := self._matches(name, kinds):  # plugins that an earlier search has loaded must not cause a conflict
            return [item for item in found if item.plugin in self._used] or found
        own = [entry for entry in matching(self.entries, name) if not is_disabled(entry)]
        if len(own) == 1:
            self._try(own[0])
        if not self._matches(name, kinds):
            self.load_all()
        return self._matches(name, kinds)

    def _matches(self, spec: str, kinds: Sequence[Kind]) -> list[Registration]:
        distribution, _, name = spec.rpartition(":")
        candidates = (item for plugin in self._loaded.values() for item in plugin.registrations)
        return [i for i in candidates if i.kind in kinds and i.name == name and is_from(i.plugin, distribution)]

    def _only(self, found: Sequence[Registration]) -> Registration:
        if len({item.plugin for item in found}) > 1:
            first = found[0]
            raise conflict(words(first.kind), first.name, [item.plugin for item in found])
        self._used[found[0].plugin] = None
        return found[0]
