"""Saves a run's configuration and the hashes of its plugins and data; removes a folder without results."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlfactory_core.cache import cache_root, file_digest
from rlfactory_core.config import RunConfig
from rlfactory_core.plugins.fingerprint import Fingerprint
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.folder import RunFolder, read_json, write_json
from rlfactory_core.runner.resolving import written_config


def save_run(config: RunConfig, registry: Registry, folder: RunFolder) -> None:
    """Save what a run is: its configuration, its plugins, and the content hashes of the files that it names."""
    save_config(config, registry, folder)
    lock_plugins(registry, folder)
    write_json(folder.data_lock, _data_digests(config, registry))


def save_config(config: RunConfig, registry: Registry, folder: RunFolder) -> None:
    """Save it in the form that ``--config`` reads, without ``out``, so that it can start another run like this one."""
    folder.write_config({**written_config(config, registry), "out": None})


@contextmanager
def removed_if_empty(folder: RunFolder) -> Iterator[None]:
    """A run that fails before its first result leaves no folder behind."""
    try:
        yield
    except BaseException:
        if not any(path.exists() for path in (folder.summary, folder.metrics, folder.logs)):
            shutil.rmtree(folder.path, ignore_errors=True)
        raise


def lock_plugins(registry: Registry, folder: RunFolder) -> None:
    """Save which plugins are in use, file by file."""
    write_json(folder.plugins_lock, {each.plugin: asdict(each) for each in registry.fingerprints()})


def data_changes(config: RunConfig, registry: Registry, folder: RunFolder) -> Iterator[str]:
    """A sentence for each file of the configuration whose content is not the one that ``data.lock.json`` has."""
    locked = read_json(folder.data_lock)
    for path, found in _data_digests(config, registry).items():
        if locked.get(path, found) != found:
            yield f"{path} has changed since the run began."


def _data_digests(config: RunConfig, registry: Registry) -> dict[str, str]:
    return {str(path): file_digest(path, cache_root()) for path in _files(written_config(config, registry))}


def _files(value: Any) -> Iterator[Path]:
    """The files that plain data names by their absolute paths, as a saved configuration does."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _files(item)
    elif isinstance(value, (str, Path)) and os.path.isabs(value) and os.path.isfile(value):
        yield Path(value)


def plugin_changes(registry: Registry, folder: RunFolder) -> Iterator[str]:
    """A sentence for each plugin in use that is not the one that ``plugins.lock.json`` has."""
    locked = read_json(folder.plugins_lock)
    for now in registry.fingerprints():
        before = Fingerprint(**locked[now.plugin]) if now.plugin in locked else None
        files = before.changed_files(now) if before else ()
        if before and (files or before.version != now.version):
            versions = f", {before.version} → {now.version}" if before.version != now.version else ""
            named = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
            yield f"{now.distribution} has changed since the run began{versions}: {named or 'no file'}."


def plugin_label(plugin: str) -> str:
    """``./my_task.py`` and ``dist:name`` as part of a folder's name."""
    return Path(plugin).stem.rsplit(":", 1)[-1]
