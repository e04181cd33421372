"""Answers of workers as bytes. Unlike pickles, they can only hold data, so reading them runs nothing that they name.

A worker runs hostile SQL in engines written in C. If these are taken over, no pickle may take over this process too.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from rlfactory_core.errors import RlfactoryError

_HEAD = struct.Struct(">cI")  # a kind, and the size in bytes or the number of items
_FLOAT = struct.Struct(">d")
_MICROSECOND = timedelta(microseconds=1)

# The kinds of single values: a kind's type, how it is written, and how it is read. A type stands before its bases.
_VALUES: dict[bytes, tuple[type, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    b"N": (type(None), lambda _: b"", lambda _: None),
    b"T": (bool, lambda value: b"\1" if value else b"", bool),
    b"i": (
        int,
        lambda value: value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True),
        lambda data: int.from_bytes(data, "big", signed=True),
    ),
    b"f": (float, _FLOAT.pack, lambda data: _FLOAT.unpack(data)[0]),
    b"b": (bytes, bytes, bytes),
    b"D": (Decimal, lambda value: str(value).encode(), lambda data: Decimal(data.decode())),
    b"w": (datetime, lambda value: value.isoformat().encode(), lambda data: datetime.fromisoformat(data.decode())),
    b"d": (date, lambda value: value.isoformat().encode(), lambda data: date.fromisoformat(data.decode())),
    b"t": (time, lambda value: value.isoformat().encode(), lambda data: time.fromisoformat(data.decode())),
    b"l": (
        timedelta,
        lambda value: str(value // _MICROSECOND).encode(),
        lambda data: timedelta(microseconds=int(data)),
    ),
    b"u": (UUID, lambda value: value.bytes, lambda data: UUID(bytes=data)),
    b"s": (
        object,  # a driver's values of other types become their text
        lambda value: str(value).encode("utf-8", "surrogatepass"),
        lambda data: data.decode("utf-8", "surrogatepass"),
    ),
}
_KINDS: dict[type, bytes] = {str: b"s", bytearray: b"b", memoryview: b"b"}
_KINDS |= {of_type: kind for kind, (of_type, _, _) in _VALUES.items()}
_COLLECTIONS = {b"(": tuple, b"[": list, b"<": frozenset}
_OBJECT = b"c"  # a data class, an enum or an error, made by calling it with its parts
_PACKAGES = ("rlfactory_nl2sql", "rlfactory_core")


def encode(value: Any) -> bytes:
    """A value of SQL, a collection of values, or an object of this program that holds such values."""
    return b"".join(_parts(value))


def decode(data: bytes) -> Any:
    """What `encode` was given; a class is only looked up among this program's data classes, enums and errors.

    Raises:
        ValueError: the bytes are nothing that `encode` makes.
    """
    try:
        value, end = _value(data, 0)
    except (struct.error, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"an answer cannot be read: {error!r}") from error
    if end != len(data):
        raise ValueError("an answer is longer than what it holds")
    return value


def _parts(value: Any) -> Iterator[bytes]:
    kind = _KINDS.get(type(value))
    if kind is not None:
        yield from _single(kind, value)
    elif isinstance(value, Enum):
        yield from _object(value, (value.value,))
    elif isinstance(value, RlfactoryError):
        reduced: Any = value.__reduce__()
        yield from _object(value, reduced[1])
    elif dataclasses.is_dataclass(value):
        yield from _object(value, tuple(getattr(value, field.name) for field in dataclasses.fields(value)))
    elif isinstance(value, dict):
        yield _HEAD.pack(b"{", len(value))
        for pair in value.items():
            yield from _parts(pair)
    elif isinstance(value, (tuple, list, set, frozenset)):
        yield _HEAD.pack(b"(" if isinstance(value, tuple) else b"[" if isinstance(value, list) else b"<", len(value))
        for item in value:
            yield from _parts(item)
    else:
        yield from _single(next(kind for kind, (base, _, _) in _VALUES.items() if isinstance(value, base)), value)


def _single(kind: bytes, value: Any) -> Iterator[bytes]:
    data = _VALUES[kind][1](value)
    yield _HEAD.pack(kind, len(data))
    yield data


def _object(value: Any, parts: tuple[Any, ...]) -> Iterator[bytes]:
    yield _HEAD.pack(_OBJECT, 0)
    yield from _parts((type(value).__module__, type(value).__qualname__, parts))


def _value(data: bytes, start: int) -> tuple[Any, int]:
    kind, size = _HEAD.unpack_from(data, start)
    at = start + _HEAD.size
    if kind in _VALUES:
        if at + size > len(data):
            raise ValueError("an answer is cut off")
        return _VALUES[kind][2](data[at : at + size]), at + size
    if kind == _OBJECT:
        (module, name, parts), at = _value(data, at)
        return _class(module, name)(*parts), at
    items = []
    for _ in range(size):
        item, at = _value(data, at)
        items.append(item)
    return (dict(items) if kind == b"{" else _COLLECTIONS[kind](items)), at


def _class(module: str, name: str) -> type:
    found = getattr(sys.modules[module], name) if module.partition(".")[0] in _PACKAGES else None
    if isinstance(found, type) and (dataclasses.is_dataclass(found) or issubclass(found, (Enum, RlfactoryError))):
        return found
    raise ValueError(f"an answer names {module}.{name}, which is no data class")
