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


def __getattr__(name: str) -> Any:
    return _code_interpreter() if name == "code_interpreter" else _find(name)


def _code_interpreter() -> Any:
    from rlfactory_core.errors import MissingExtraError
    from rlfactory_core.utils.deprecation import warn_deprecated

    new = "rlfactory_interpreter.code_interpreter"
    warn_deprecated("rlfactory_core.code_interpreter", since="1.2", until="2.0", instead=new, depth=2)
    try:
        return import_module("rlfactory_interpreter").code_interpreter
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "The code interpreter is a package of its own now: python -m pip install rlfactory-interpreter, then "
            "`from rlfactory_interpreter import code_interpreter`."
        ) from error


if not any(isinstance(finder, OldPaths) for finder in sys.meta_path):
    sys.meta_path.insert(0, OldPaths())
