"""Reads the optional attributes of a part, such as a scorer's ``bounds``, and refuses misspelt ones."""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

from rlfactory_core.errors import PluginError

Traits = TypeVar("Traits")
ALIKE = 0.85  # a name with at least this ratio of difflib is a misspelling
MISSING_LETTERS = 2  # a name without so many last letters is one as well, such as "match" for "matches"


def optional_attributes(part: object, kind: type[Traits], what: str) -> Traits:
    """The attributes of ``part`` that the dataclass ``kind`` names, with the dataclass's defaults for the others.

    Args:
        what: the part in words, for the message.

    Raises:
        PluginError: a public attribute has almost the name of a missing one, such as ``bound`` for ``bounds``.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    given: dict[str, Any] = {name: getattr(part, name) for name in names if hasattr(part, name)}
    missing = tuple(name for name in names if name not in given)
    for name in dir(part) if missing else ():
        if not name.startswith("_") and name not in given and (meant := _meant(name, missing)):
            raise PluginError(
                f"{what} has the attribute '{name}', which nothing reads. Did you mean '{meant}'? "
                f"An attribute of your own needs another name, such as '_{name}'."
            )
    return kind(**given)


@cache  # a format writes thousands of turns, and is looked at before each
def _meant(name: str, missing: tuple[str, ...]) -> str:
    cut = (known for known in missing if known.startswith(name) and len(known) - len(name) <= MISSING_LETTERS)
    return next(iter([*get_close_matches(name, missing, 1, ALIKE), *cut]), "")
