"""JSON schemas as servers that enforce one take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def object_of(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """An object with one property, which has to be there, and nothing else."""
    return {"type": "object", "properties": {name: value}, "required": [name], "additionalProperties": False}
