"""Messages of workers as JSON. Unlike pickles, they can only hold data, so reading them runs nothing that they name.

A worker runs hostile SQL in engines written in C. If these are taken over, no pickle may take over this process too.
Lists arrive as tuples, and values of types that a driver alone knows as their text.
"""

from __future__ import annotations

import dataclasses
import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from rlfactory_core import errors
from rlfactory_core.types import Verdict
from rlfactory_nl2sql.checks.parsing import NotUnderstoodError
from rlfactory_nl2sql.connection import Failure, QueryError, Rows, SessionLostError
from rlfactory_nl2sql.schema import Column, ForeignKey, Schema, Table
from rlfactory_nl2sql.verification.gold import Gold

_MARK = "!"  # before the name of a type that JSON lacks
_MICROSECOND = timedelta(microseconds=1)
# How values of each type are written and read; a type stands before its bases.
_VALUES: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    bytes: (lambda value: b64encode(value).decode(), b64decode),
    **dict.fromkeys((frozenset, set), (list, lambda items: frozenset(_tuples(items)))),
    Decimal: (str, Decimal),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (lambda value: value // _MICROSECOND, lambda number: timedelta(microseconds=number)),
    UUID: (str, UUID),
}
_READERS = {kind.__name__: read for kind, (_, read) in _VALUES.items()}
_ERRORS = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.RlfactoryError)]
_CLASSES: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        *(Rows, Schema, Table, Column, ForeignKey, Gold, Verdict, Failure),
        *(QueryError, NotUnderstoodError, SessionLostError, *_ERRORS),
    )
}


def encode(value: Any) -> bytes:
    """A value of SQL, a collection of values, or an object of a class above; one line of text."""
    return json.dumps(value, default=_marked).encode()


def decode(data: bytes | bytearray) -> Any:
    """What `encode` was given.

    Raises:
        ValueError: the bytes are nothing that `encode` makes.
    """
    try:
        return _tuples(_DECODER.decode(data.decode()))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"an answer cannot be read: {error!r}") from error


def _marked(value: Any) -> Any:
    name = type(value).__name__
    if isinstance(value, errors.RlfactoryError):
        reduced: Any = value.__reduce__()
        return {_MARK + name: reduced[1]}
    if isinstance(value, Enum):
        return {_MARK + name: [value.value]}
    if dataclasses.is_dataclass(value):
        return {_MARK + name: [getattr(value, field.name) for field in dataclasses.fields(value)]}
    kind = next((kind for kind in _VALUES if isinstance(value, kind)), None)
    return {_MARK + kind.__name__: _VALUES[kind][0](value)} if kind is not None else str(value)


def _read(found: dict[str, Any]) -> Any:
    name, value = next(iter(found.items()), ("", None))
    if not name.startswith(_MARK):
        return {key: _tuples(each) for key, each in found.items()}
    name = name.removeprefix(_MARK)
    return _CLASSES[name](*_tuples(value)) if name in _CLASSES else _READERS[name](value)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


_DECODER = json.JSONDecoder(object_hook=_read)
