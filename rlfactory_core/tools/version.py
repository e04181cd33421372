"""What tells a function from every other one, and from itself after an edit, in any process and on any day.

Answers that outlive a run are kept under it, so it rather changes too often than too rarely: the function's whole file
counts, because that is where the helpers stand that one edits with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from rlfactory_core.cache import digest


class _Unknown(Exception):  # noqa: N818 it is no error, and ends within this file
    """A part of the function that has no lasting description."""


def code_version(fn: Callable[..., Any]) -> str:
    """A hash of the function's name, code, file, default values and closure, and those of what it wraps.

    Empty where that does not settle what it does: the method of an object, or a closure over one. What the function
    imports does not count.
    """
    if inspect.ismethod(fn):
        return ""
    try:
        return digest(_parts(fn))
    except (_Unknown, RecursionError, ValueError):  # ValueError: a closure over what is not there yet
        return ""


def _parts(fn: Any) -> Iterator[str | bytes]:
    yield f"{fn.__module__}.{fn.__qualname__}"
    if isinstance(fn, FunctionType):
        yield from _value(fn.__code__)
        yield from _value((fn.__defaults__, fn.__kwdefaults__))
        for cell in fn.__closure__ or ():
            yield from _value(cell.cell_contents)
        try:
            yield Path(fn.__code__.co_filename).read_bytes()
        except OSError:  # typed in, or made by exec
            yield b""
    if hasattr(fn, "__wrapped__"):
        yield from _parts(fn.__wrapped__)


def _value(value: object) -> Iterator[str | bytes]:
    """The value's kind and what it holds, in an order that does not depend on the process."""
    yield type(value).__name__
    if value is None or value is ... or type(value) in (bool, int, float, complex, str, bytes):
        yield repr(value)
    elif isinstance(value, CodeType):
        yield value.co_code
        yield from _value((value.co_names, value.co_varnames, value.co_consts))
    elif isinstance(value, FunctionType):
        yield from _parts(value)
    elif isinstance(value, Enum):
        yield f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"
    elif type(value) in (tuple, list):
        yield str(len(value))  # type: ignore[arg-type]
        for item in value:  # type: ignore[attr-defined]
            yield from _value(item)
    elif type(value) in (set, frozenset):
        yield from sorted(digest(_value(item)) for item in value)  # type: ignore[attr-defined]
    elif type(value) is dict:
        yield from sorted(digest(_value(item)) for item in value.items())
    else:
        raise _Unknown
