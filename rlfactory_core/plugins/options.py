"""The keys that a section or a factory takes, with type, default and documentation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from docstring_parser import parse
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlfactory_core.plugins.field_docs import field_docs
from rlfactory_core.plugins.type_text import section_class, type_text, value_text


@dataclass(frozen=True, slots=True)
class Option:
    """One key."""

    key: str  # dotted where it stands in a section of the section
    type: str  # in words, with its constraints
    default: str | None  # as it would be given; None: it has to be given
    doc: str = ""  # empty where nothing is said of it


def section_options(section: type[BaseModel]) -> tuple[Option, ...]:
    """Every key of a section, those of sections within it too."""
    return tuple(_keys(section, None, ""))


def signature_options(factory: Callable[..., Any]) -> tuple[Option, ...]:
    """The named arguments of a class or function; what its docstring says under ``Args:`` documents them."""
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
    """``made`` is the default of the field that holds the section, whose values may be others than the class's."""
    docs = field_docs(section)
    for name, field in section.model_fields.items():
        default = getattr(made, name) if made is not None else _default(field)
        inner, key = section_class(field.annotation), f"{at}{name}"
        doc = docs.get(name, "")
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
    """Its annotations as objects; those that name what exists for a type checker only stay as they are written."""
    try:
        return inspect.signature(factory, eval_str=True)
    except NameError:
        return inspect.signature(factory)
    except ValueError:
        return inspect.Signature()  # built in, such as dict: it cannot be told
