"""A run's configuration, made as a user writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlfactory_core.config import RunConfig
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.runner.resolving import run_config
from rlfactory_core.settings import merge, parse_override


def made_config(*given: str | Mapping[str, Any]) -> RunConfig:
    """Later ones win: ``key=value`` texts and nested plain data. No task and no engine has seen it."""
    data = merge(*(parse_override(item) if isinstance(item, str) else item for item in given))
    return run_config(data, Registry())
