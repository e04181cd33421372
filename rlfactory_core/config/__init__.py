"""The schema of a run's configuration. The module `loading` reads, merges and writes configurations."""

from rlfactory_core.config.base import File, Fraction, Natural, Positive, Section
from rlfactory_core.config.sections import (
    CachePlace,
    DataColumns,
    EngineSection,
    RewardConfig,
    RunConfig,
    ToolLimits,
    ToolsConfig,
)

__all__ = [
    "CachePlace",
    "DataColumns",
    "EngineSection",
    "File",
    "Fraction",
    "Natural",
    "Positive",
    "RewardConfig",
    "RunConfig",
    "Section",
    "ToolLimits",
    "ToolsConfig",
]
