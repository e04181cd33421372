"""Describes the options of a section or a factory: key, type, default and documentation."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from docstring_parser import parse
from pydantic import BaseModel
from pydantic.fields import FieldInfo

__all__ = ["Option", "section_options", "value_text"]


@dataclass(frozen=True, slots=True)
class Option:
    """One key."""

    key: str  # dotted if it is in a section within the section
    type: str  # in words, with its constraints
    default: str | None  # as a user would write it; None: the key is required
    doc: str = ""


def section_options(section: type[BaseModel]) -> tuple[Option, ...]:
    """Every key of a section, including those of sections within it."""
    return tuple(_keys(section, None, ""))


def signature_options(factory: Callable[..., Any]) -> tuple[Option, ...]:
    """The named arguments of a class or function, with the documentation under ``Args:`` of its docstring."""
    docs = {item.arg_name: item.description or "" for item in parse(inspect.getdoc(factory) or "").params}
    empty, named = inspect.Parameter.empty, (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(
        Option(
            name,
            type_text(Any if parameter.annotation is empty else parameter.annotation),
            None if parameter.default is empty else value_text(parameter.default),
            " ".join(docs.get(name, "").split()),
        )
        for name, parameter in _signature(factory).parameters.items()
        if parameter.kind in named
    )


def _signature(factory: Callable[..., Any]) -> inspect.Signature:
    """The signature with annotations as objects, or as strings if they name types known to a type checker only."""
    try:
        return inspect.signature(factory, eval_str=True)
    except NameError:
        return inspect.signature(factory)
    except ValueError:
        return inspect.Signature()  # of a built-in type, such as dict, it is unknown


def _keys(section: type[BaseModel], outer: BaseModel | None, at: str) -> Iterator[Option]:
    """``outer`` is the default of the field that holds the section; its values may differ from the class's defaults."""
    for name, field in section.model_fields.items():
        if outer is not None:
            default = getattr(outer, name)
        else:
            default = ... if field.is_required() else field.get_default(call_default_factory=True)
        inner, within = _section(field.annotation), default if isinstance(default, BaseModel) else None
        doc = " ".join((field.description or "").split())
        if inner is None or within is None or doc:
            text = None if default is ... else "{…}" if within is not None else value_text(default)
            yield Option(at + name, type_text(field.annotation, field.metadata), text, doc)
        if inner is not None:
            yield from _keys(inner, within, f"{at}{name}.")


def _section(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, also if it may be null; None for a field of any other type."""
    if get_origin(annotation) is Annotated:
        return _section(get_args(annotation)[0])
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    sections = [item for item in options if item is not type(None)]
    only = sections[0] if len(sections) == 1 else None
    return only if isinstance(only, type) and issubclass(only, BaseModel) else None


_CONSTRAINTS = {  # attributes of the objects in pydantic's `FieldInfo.metadata`
    "gt": "> {}",
    "ge": ">= {}",
    "lt": "< {}",
    "le": "<= {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
    "multiple_of": "a multiple of {}",
    "pattern": "matching {}",
}


def type_text(annotation: Any, constraints: Iterable[Any] = ()) -> str:
    """An annotation in words, such as ``int >= 1, < 9``; ``constraints`` is pydantic's `FieldInfo.metadata`."""
    if get_origin(annotation) is Annotated:  # inside a union, for one
        field = FieldInfo.from_annotation(annotation)
        return type_text(field.annotation, [*field.metadata, *constraints])
    limits = [
        words.format(value_text(getattr(item, name)))
        for item in constraints
        for name, words in _CONSTRAINTS.items()
        if getattr(item, name, None) is not None
    ]
    return f"{_plain(annotation)} {', '.join(limits)}".rstrip()


def _plain(annotation: Any) -> str:
    """An annotation in words, without its constraints."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in (None, type(None), Any):
        return "anything" if annotation is Any else "null"
    if origin in (Literal, Union, UnionType):
        return " | ".join(map(value_text if origin is Literal else type_text, arguments))
    base = origin or annotation
    if not isinstance(base, type):
        return str(annotation).replace("typing.", "")
    if issubclass(base, Mapping):
        values = arguments[1] if len(arguments) == 2 else Any
        return "mapping" if values is Any else f"mapping to {type_text(values)}"
    if issubclass(base, tuple) and arguments and arguments[-1] is not Ellipsis:
        return f"[{', '.join(map(type_text, arguments))}]"
    if issubclass(base, list | tuple | set | frozenset | Sequence) and not issubclass(base, str):
        return f"list of {type_text(arguments[0])}" if arguments else "list"
    return "section" if issubclass(base, BaseModel) else "path" if issubclass(base, PurePath) else base.__name__


def value_text(value: Any) -> str:
    """A default as a user would write it in YAML or after ``KEY=``."""
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
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)
