"""Types and values as people write them in a configuration: ``int > 0``, ``off | memory``, ``list of str``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import PurePath
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_LOWER = {"gt": "<", "ge": "<="}  # as it stands before the type
_UPPER = {"lt": "<", "le": "<="}
_FLIPPED = {"<": ">", "<=": ">="}
_OTHERS = {
    "min_length": "at least {} long",
    "max_length": "at most {} long",
    "multiple_of": "a multiple of {}",
    "pattern": "matching {}",
}


def type_text(annotation: Any, constraints: Iterable[Any] = ()) -> str:
    """An annotation in words.

    Args:
        constraints: what pydantic keeps beside it, `FieldInfo.metadata`.
    """
    if get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        return type_text(annotation, [*_flat(inner), *constraints])
    return _bounded(_plain(annotation), constraints)


def value_text(value: Any) -> str:
    """A default as it would be given in YAML or after ``KEY=``."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str | PurePath):
        text = str(value)
        return text if text and text == text.strip() else json.dumps(text)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {value_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence | set | frozenset):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else _null_or(value)


def section_class(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, also where it may be null; None for a field of any other type."""
    if get_origin(annotation) is Annotated:
        return section_class(get_args(annotation)[0])
    options = [item for item in _options(annotation) if item is not type(None)]
    only = options[0] if len(options) == 1 else None
    return only if isinstance(only, type) and issubclass(only, BaseModel) else None


def _null_or(value: Any) -> str:
    return "null" if value is None else str(value)


def _options(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _plain(annotation: Any) -> str:
    """Without constraints of the whole."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is type(None):
        return "null"
    if origin is Literal:
        return " | ".join(map(value_text, arguments))
    if origin in (Union, UnionType):
        return " | ".join(map(type_text, arguments))
    if annotation is Any:
        return "anything"
    base = origin or annotation
    return _class(base, arguments) if isinstance(base, type) else str(annotation).replace("typing.", "")


def _class(base: type, arguments: tuple[Any, ...]) -> str:
    if issubclass(base, Mapping):
        values = arguments[1] if len(arguments) == 2 else Any
        return "mapping" if values is Any else f"mapping to {type_text(values)}"
    if issubclass(base, tuple) and arguments and arguments[-1] is not Ellipsis:
        return f"[{', '.join(map(type_text, arguments))}]"
    if issubclass(base, list | tuple | set | frozenset | Sequence) and not issubclass(base, str):
        return f"list of {type_text(arguments[0])}" if arguments else "list"
    if issubclass(base, BaseModel):
        return "section"
    return "path" if issubclass(base, PurePath) else base.__name__


def _flat(metadata: Iterable[Any]) -> list[Any]:
    """``Annotated[int, Field(gt=0)]`` inside a union keeps its constraints one level deeper."""
    return [part for item in metadata for part in (item.metadata if isinstance(item, FieldInfo) else (item,))]


def _bounded(plain: str, constraints: Iterable[Any]) -> str:
    facts = {name: value for item in constraints for name, value in _facts(item).items() if value is not None}
    lower = next(((sign, facts[name]) for name, sign in _LOWER.items() if name in facts), None)
    upper = next(((sign, facts[name]) for name, sign in _UPPER.items() if name in facts), None)
    if lower and upper:
        plain = f"{value_text(lower[1])} {lower[0]} {plain} {upper[0]} {value_text(upper[1])}"
    elif lower:
        plain = f"{plain} {_FLIPPED[lower[0]]} {value_text(lower[1])}"
    elif upper:
        plain = f"{plain} {upper[0]} {value_text(upper[1])}"
    others = [words.format(value_text(facts[name])) for name, words in _OTHERS.items() if name in facts]
    return ", ".join([plain, *others])


def _facts(constraint: Any) -> Mapping[str, Any]:
    """What an object of ``annotated_types`` or pydantic says, by the name of its keyword of ``Field``."""
    names = (*_LOWER, *_UPPER, *_OTHERS)
    return {name: getattr(constraint, name, None) for name in names}
