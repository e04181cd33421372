"""The data that every process of a run gets: the configuration, the required plugins and the run's folder.

It is part of verl's configuration (``data.rlfactory``), which verl passes to its trainer, its data set and each agent
loop.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rlfactory_core.cache import cache_root
from rlfactory_core.config import RunConfig
from rlfactory_core.engines import EngineRun
from rlfactory_core.plugins import Fingerprint, Registry, is_file
from rlfactory_core.runner import engine_run
from rlfactory_core.settings import validate_section


@dataclass(frozen=True, slots=True)
class Payload:
    """The description of a run for its processes.

    Args:
        sources: the texts of one-file plugins by their paths, which the other machines may not have.
        folder: the run's folder, on the driver's machine only.
        left_out: the ids of the samples of each split whose prompts leave no room for an answer.
    """

    config: RunConfig
    fingerprints: tuple[Fingerprint, ...]
    folder: str
    sources: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        config: RunConfig,
        fingerprints: Sequence[Fingerprint],
        folder: Path,
        left_out: Mapping[str, Sequence[str]] = {},
    ) -> Payload:
        """Made by the driver."""
        files = filter(is_file, config.task_plugins)
        sources = {plugin: Path(plugin).expanduser().read_bytes().decode() for plugin in files}
        return cls(config, tuple(fingerprints), str(folder.resolve()), sources, left_out)

    def to_text(self) -> str:
        """As text without characters that are special in a configuration language."""
        data = {
            "config": self.config.model_dump(mode="json"),
            "fingerprints": [asdict(item) for item in self.fingerprints],
            "folder": self.folder,
            "sources": dict(self.sources),
            "left_out": dict(self.left_out),
        }
        return base64.b64encode(zlib.compress(json.dumps(data).encode())).decode()

    @classmethod
    def from_text(cls, text: str) -> Payload:
        """The inverse of `to_text`."""
        data = json.loads(zlib.decompress(base64.b64decode(text)))
        prints = tuple(Fingerprint(**item) for item in data["fingerprints"])
        config = validate_section(RunConfig, data["config"])
        return cls(config, prints, data["folder"], data["sources"], data["left_out"])

    def run(self) -> EngineRun:
        """The run in a worker; raises as `load_plugins`."""
        return engine_run(*self.load_plugins(), Path(self.folder))

    def load_plugins(self) -> tuple[RunConfig, Registry]:
        """Load the plugins in a worker; returns the configuration for this machine, and the plugins.

        Raises:
            PluginError: a plugin is missing, broken or differs from the driver's; the message names the file.
        """
        config, prints = self.config, self.fingerprints
        for plugin in self.sources:
            if not Path(plugin).expanduser().is_file():
                config, prints = self._written(plugin, config, prints)
        registry = Registry()
        registry.load_for_worker(prints)
        return config, registry

    def _written(
        self, plugin: str, config: RunConfig, prints: tuple[Fingerprint, ...]
    ) -> tuple[RunConfig, tuple[Fingerprint, ...]]:
        """Write a one-file plugin that this machine lacks to its cache, under the plugin's name."""
        mine = next(item for item in prints if item.plugin == _qualified(plugin))
        path = cache_root() / "plugins" / mine.digest / Path(plugin).name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.sources[plugin].encode())
        moved = Fingerprint(str(path), mine.distribution, mine.version, mine.files)
        others = tuple(item for item in prints if item is not mine)
        return config.with_plugin(plugin, str(path)), (*others, moved)


def _qualified(plugin: str) -> str:
    return str(Path(plugin).expanduser().resolve())
