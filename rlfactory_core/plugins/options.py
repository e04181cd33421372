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
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(
        Option(
            key=name,
            type=type_text(Any if parameter.annotation is parameter.empty else parameter.annotation),
            default=None if parameter.default is parameter.empty else value_text(parameter.default),
            doc=" ".join(docs.get(name, "").split()),
        )
        for name, parameter in _signature(factory).parameters.items()
        if parameter.kind in named
    )


def _keys(section: type[BaseModel], made: BaseModel | None, at: str) -> Iterator[Option]:
    """``made`` is the default of the field that holds the section; its values may differ from the class's defaults."""
    for name, field in section.model_fields.items():
        default = getattr(made, name) if made is not None else _default(field)
        inner, key = section_class(field.annotation), f"{at}{name}"
        doc = " ".join((field.description or "").split())
        if inner is None:
            yield Option(key, type_text(field.annotation, field.metadata), _text(default), doc)
            continue
        if not isinstance(default, BaseModel) or doc:
            shown = "{…}" if isinstance(default, BaseModel) else _text(default)
            yield Option(key, type_text(field.annotation), shown, doc)
        yield from _keys(inner, default if isinstance(default, BaseModel) else None, f"{key}.")


def _default(field: FieldInfo) -> Any:
    return inspect.Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)


def _text(default: Any) -> str | None:
    return None if default is inspect.Parameter.empty else value_text(default)


def _signature(factory: Callable[..., Any]) -> inspect.Signature:
    """The signature with annotations as objects, or as strings if they name types known to a type checker only."""
    try:
        return inspect.signature(factory, eval_str=True)
    except NameError:
        return inspect.signature(factory)
    except ValueError:
        return inspect.Signature()  # of a built-in type, such as dict, it is unknown


_LOWER = {"gt": "<", "ge": "<="}  # written before the type
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
        constraints: `FieldInfo.metadata` of pydantic.
    """
    if get_origin(annotation) is Annotated:  # inside a union, for one
        field = FieldInfo.from_annotation(annotation)
        return type_text(field.annotation, [*field.metadata, *constraints])
    return _bounded(_plain(annotation), constraints)


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


def section_class(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, also if it may be null; None for a field of any other type."""
    if get_origin(annotation) is Annotated:
        return section_class(get_args(annotation)[0])
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    options = tuple(item for item in options if item is not type(None))
    only = options[0] if len(options) == 1 else None
    return only if isinstance(only, type) and issubclass(only, BaseModel) else None


def _plain(annotation: Any) -> str:
    """An annotation in words, without its constraints."""
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
    """The constraints in an object of ``annotated_types`` or pydantic, by their names as arguments of ``Field``."""
    names = (*_LOWER, *_UPPER, *_OTHERS)
    return {name: getattr(constraint, name, None) for name in names}
