"""Deprecates public names: they warn for at least one minor version of the plugin API, and say what to use instead.

pytest and ``rlfactory plugins doctor`` show these warnings, a run does not. A hook is deprecated with pluggy's own
``hookspec(warn_on_impl=RlfactoryDeprecationWarning(…))``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

__all__ = ["RlfactoryDeprecationWarning", "moved", "renamed_field", "warn_deprecated"]

Class = TypeVar("Class", bound=type)


class RlfactoryDeprecationWarning(DeprecationWarning):
    """A plugin uses what a later version of the plugin API does not have."""


def warn_deprecated(what: str, *, since: str, until: str, instead: str, depth: int = 1) -> None:
    """Warn the code that called the caller; Python does so once for each place.

    Args:
        what: a name, or ``the argument 'x' of f``.
        since: the version of the plugin API that deprecated it.
        until: the version that will not have it.
        instead: what to write in its place.
        depth: how many calls further up the place is that has to change.
    """
    message = f"{what} is deprecated since plugin API {since} and goes with {until}. Use {instead}."
    warnings.warn(message, RlfactoryDeprecationWarning, stacklevel=depth + 2)


def moved(module: str, names: Mapping[str, str], *, since: str, until: str) -> Callable[[str], Any]:
    """A module's ``__getattr__`` for names that have moved to another module.

    Args:
        module: the ``__name__`` of the module.
        names: old name -> ``module:name``.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = names[name].partition(":")
        warn_deprecated(f"{module}.{name}", since=since, until=until, instead=f"{home}.{new}")
        return getattr(import_module(home), new)

    return find


def renamed_field(old: str, new: str, *, since: str, until: str) -> Callable[[Class], Class]:
    """Decorates a dataclass of which a field has a new name: the former one can still be given and read."""

    def decorate(cls: Class) -> Class:
        name, make = cls.__name__, getattr(cls, "__init__")  # noqa: B009 - as below

        @wraps(make)
        def init(self: Any, *args: Any, **values: Any) -> None:
            if old in values:
                warn_deprecated(f"the argument '{old}' of {name}", since=since, until=until, instead=f"'{new}'")
                values[new] = values.pop(old)
            make(self, *args, **values)

        def read(self: Any) -> Any:
            warn_deprecated(f"{name}.{old}", since=since, until=until, instead=f"{name}.{new}")
            return getattr(self, new)

        setattr(cls, "__init__", init)  # noqa: B010 - a type checker does not allow the assignment
        setattr(cls, old, property(read))
        return cls

    return decorate
