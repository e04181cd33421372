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
_CONSTANTS = {b"N": None, b"T": True, b"F": False}
_PARSERS: dict[bytes, Callable[[bytes], Any]] = {
    b"i": lambda data: int.from_bytes(data, "big", signed=True),
    b"f": lambda data: _FLOAT.unpack(data)[0],
    b"s": lambda data: data.decode("utf-8", "surrogatepass"),
    b"b": bytes,
    b"D": lambda data: Decimal(data.decode()),
    b"w": lambda data: datetime.fromisoformat(data.decode()),
    b"d": lambda data: date.fromisoformat(data.decode()),
    b"t": lambda data: time.fromisoformat(data.decode()),
    b"l": lambda data: timedelta(microseconds=int(data)),
    b"u": lambda data: UUID(bytes=data),
}
_COLLECTIONS = {b"(": tuple, b"[": list, b"<": frozenset}
_PACKAGES = ("rlfactory_nl2sql", "rlfactory_core")


def encode(value: Any) -> bytes:
    """A value of SQL, a collection of values, or an object of this program that holds such values.

    A driver's values of other types become their text.
    """
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
    if value is None or isinstance(value, bool):
        yield _HEAD.pack(b"N" if value is None else b"T" if value else b"F", 0)
    elif isinstance(value, Enum):
        yield from _object(b"e", value, (value.value,))
    elif isinstance(value, RlfactoryError):
        reduced: Any = value.__reduce__()
        yield from _object(b"c", value, reduced[1])
    elif dataclasses.is_dataclass(value):
        yield from _object(b"c", value, tuple(getattr(value, field.name) for field in dataclasses.fields(value)))
    elif isinstance(value, dict):
        yield _HEAD.pack(b"{", len(value))
        for pair in value.items():
            yield from _parts(pair)
    elif isinstance(value, (tuple, list, set, frozenset)):
        yield _HEAD.pack(b"(" if isinstance(value, tuple) else b"[" if isinstance(value, list) else b"<", len(value))
        for item in value:
            yield from _parts(item)
    else:
        kind, data = _atom(value)
        yield _HEAD.pack(kind, len(data))
        yield data


def _object(kind: bytes, value: Any, parts: tuple[Any, ...]) -> Iterator[bytes]:
    yield _HEAD.pack(kind, 0)
    yield from _parts((type(value).__module__, type(value).__qualname__, parts))


def _atom(value: Any) -> tuple[bytes, bytes]:
    if isinstance(value, int):
        return b"i", value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
    if isinstance(value, float):
        return b"f", _FLOAT.pack(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"b", bytes(value)
    if isinstance(value, UUID):
        return b"u", value.bytes
    if isinstance(value, timedelta):
        return b"l", str(value // timedelta(microseconds=1)).encode()
    if isinstance(value, (date, time)):
        kind = b"w" if isinstance(value, datetime) else b"d" if isinstance(value, date) else b"t"
        return kind, value.isoformat().encode()
    return b"D" if isinstance(value, Decimal) else b"s", str(value).encode("utf-8", "surrogatepass")


def _value(data: bytes, start: int) -> tuple[Any, int]:
    kind, size = _HEAD.unpack_from(data, start)
    at = start + _HEAD.size
    if kind in _CONSTANTS:
        return _CONSTANTS[kind], at
    if kind in _PARSERS:
        if at + size > len(data):
            raise ValueError("an answer is cut off")
        return _PARSERS[kind](data[at : at + size]), at + size
    if kind in (b"c", b"e"):
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
