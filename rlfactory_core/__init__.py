"""rlfactory: reinforcement-learning post-training of LLMs on multi-turn tool use, one plugin a task.

Everything here is loaded on first use, so that ``import rlfactory_core`` costs next to nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from rlfactory_core.utils.lazy_names import lazy_names
from rlfactory_core.utils.old_paths import OldPaths

_find, __all__ = lazy_names(__name__, __file__)


_MOVED = {
    "code_interpreter": "rlfactory_interpreter",
    "agent_tool": "rlfactory_agents",
    "model_tool": "rlfactory_agents",
    "McpSource": "rlfactory_mcp",
    "qwen_tool": "rlfactory_mcp",
    "qwen_tools": "rlfactory_mcp",
}
"""Names that are in packages of plugins now."""


def __getattr__(name: str) -> Any:
    return _moved(name, _MOVED[name]) if name in _MOVED else _find(name)


def _moved(name: str, package: str) -> Any:
    from rlfactory_core.errors import MissingExtraError
    from rlfactory_core.utils.deprecation import warn_deprecated

    warn_deprecated(f"rlfactory_core.{name}", since="1.2", until="2.0", instead=f"{package}.{name}", depth=2)
    try:
        return getattr(import_module(package), name)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingExtraError(
            f"`{name}` is in a package of its own now: python -m pip install {package.replace('_', '-')}, then "
            f"`from {package} import {name}`."
        ) from error


if not any(isinstance(finder, OldPaths) for finder in sys.meta_path):
    sys.meta_path.insert(0, OldPaths())
