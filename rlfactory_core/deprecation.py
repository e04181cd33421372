"""How a public name goes: it warns for at least one minor version of the plugin API, and says what to use instead.

Python shows these warnings to those who can act on them: pytest does, ``rlfactory plugins doctor`` does, and a run is
silent. A hook goes with pluggy's own ``hookspec(warn_on_impl=RlfactoryDeprecationWarning(…))``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["RlfactoryDeprecationWarning", "moved", "warn_deprecated"]


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
    """A module's ``__getattr__`` for names that stand elsewhere now.

    Args:
        module: that it is for, its ``__name__``.
        names: old name -> ``module:name``.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = names[name].partition(":")
        warn_deprecated(f"{module}.{name}", since=since, until=until, instead=f"{home}.{new}")
        return getattr(import_module(home), new)

    return find
