"""The configuration of a run. The module `loading` reads, merges and writes configurations."""

from rlfactory_core.config.run import RunConfig, TaskShare

__all__ = ["RunConfig", "TaskShare"]
