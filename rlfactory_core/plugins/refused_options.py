"""What pydantic refuses in a plugin's ``Config``, in our words: its own speak of models and schemas."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pydantic
from pydantic import PydanticUserError

import rlfactory_core

_OURS = tuple(str(Path(package.__file__).parent) for package in (pydantic, rlfactory_core) if package.__file__)
_SAID = {
    "model-field-missing-annotation": (
        r"`(\w+) = (.*?)`\. ",
        "the option {0} = {1} has no type. Expected one, such as `{0}: int` or `{0}: str`, and then its default",
    ),
    "class-not-fully-defined": (
        r"`(\w+)` is not fully defined; you should define `(\w+)`",
        "the type {1} of an option in {0} is not known at run time. Import it at the top, not under TYPE_CHECKING",
    ),
    "schema-for-unknown-type": (
        r"schema for (.*?)\. Set",
        "{0} cannot be the type of an option. Expected plain data (str, int, Path, Literal, lists, …) or a Section",
    ),
}


def refused_options(error: PydanticUserError) -> str:
    """What is wrong, the file and line where one is known, and what to write."""
    pattern, words = _SAID.get(str(error.code), ("", ""))
    found = re.search(pattern, error.message)
    said = words.format(*found.groups()) if words and found else error.message.splitlines()[0].rstrip(".")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((*_OURS, "<"))]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{said}{where}."
