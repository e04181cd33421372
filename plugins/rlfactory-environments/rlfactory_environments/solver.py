"""A user's function that solves an environment, named in the configuration."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlfactory_core import Message, Sample
from rlfactory_core.errors import ConfigError

Solver = Callable[[Sample, Sequence[Message]], Message]
"""The next message of a solution, as `Task.solve`."""


def load_solver(name: str) -> Solver:
    """The function ``MODULE:NAME`` or ``FILE.py:NAME``; a text that it returns becomes an assistant message.

    Raises:
        ConfigError: there is no such function.
    """
    function = _found(name)

    def solve(sample: Sample, messages: Sequence[Message]) -> Message:
        reply = function(sample, messages)
        return Message("assistant", reply) if isinstance(reply, str) else reply

    return solve


def _found(name: str) -> Callable[..., Any]:
    place, _, attribute = name.rpartition(":")
    try:
        function = getattr(_module(place), attribute)
    except (ImportError, AttributeError, OSError) as error:
        raise ConfigError(
            f"task.solver: got {name!r}, which cannot be loaded ({error}); expected MODULE:NAME or FILE.py:NAME of a "
            "function (sample, messages) that returns the next message."
        ) from error
    if not callable(function):
        raise ConfigError(f"task.solver: {name!r} is {function!r:.80}; expected a function (sample, messages).")
    return function  # type: ignore[no-any-return]


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place).expanduser().resolve()
    spec = importlib.util.spec_from_file_location(f"rlfactory_solver_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
