"""The public API as text, one line a name or member; run as a script, it writes the snapshot that a test compares.

Independent of the Python version: annotations are shown as they stand in the source.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel

from rlfactory_core.plugins.options import section_options, type_text

ROOT = Path(__file__).parent.parent.parent
SNAPSHOT = ROOT / "tests" / "unit" / "public_api.txt"
_MODULE = re.compile(r"^\| `(rlfactory_[\w.]+)` \|", re.MULTILINE)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def public_modules() -> list[str]:
    """Those that the documentation names."""
    return _MODULE.findall((ROOT / "docs" / "api.md").read_text(encoding="utf-8"))


def public_names() -> set[tuple[str, str]]:
    """Each with its module; a public module is also a name of its parent."""
    names = {(module, name) for module in public_modules() for name in import_module(module).__all__}
    parents = (module.rpartition(".") for module in public_modules())
    return names | {(parent, name) for parent, _, name in parents}


def api_text() -> str:
    """All of it; each name in full where it is met first."""
    shown: dict[int, str] = {}
    return "\n".join(line for name in public_modules() for line in (*_module(name, shown), "")).rstrip() + "\n"


def _module(name: str, shown: dict[int, str]) -> Iterator[str]:
    module = import_module(name)
    yield name
    for attribute in sorted(module.__all__):
        if attribute == "__version__":
            continue
        value = getattr(module, attribute)
        if (inspect.isclass(value) or inspect.isroutine(value)) and id(value) in shown:
            yield f"    {attribute} = {shown[id(value)]}"
        else:
            shown[id(value)] = f"{name}.{attribute}"
            yield from (f"    {line}" for line in _name(attribute, value))


def _name(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.isroutine(value):
        yield _function(name, value)
    elif isinstance(value, str):
        yield f"{name} = {value!r}"
    else:
        yield f"{name}: {type_text(value) if get_origin(value) else type(value).__name__}"


def _class(name: str, cls: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    yield f"class {name}({bases})" if bases else f"class {name}"
    if issubclass(cls, Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in cls)
        return
    if issubclass(cls, BaseModel):
        for option in section_options(cls):
            yield f"    {option.key}: {option.type}" + ("" if option.default is None else f" = {option.default}")
        return
    if "__init__" in cls.__dict__ and not getattr(cls, "_is_protocol", False):
        yield f"    {_function('__init__', cls.__dict__['__init__'])}"
    fields = getattr(cls, "__dataclass_fields__", {})  # the constructor shows them
    annotated = inspect.get_annotations(cls)
    for member in sorted({*cls.__dict__, *annotated} - {*fields}):
        if not member.startswith("_"):
            yield from (f"    {line}" for line in _member(member, cls.__dict__.get(member, annotated.get(member))))


def _member(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, property):
        yield f"{name} (property)"
    elif isinstance(value, classmethod | staticmethod):
        yield f"{type(value).__name__} {_function(name, value.__func__)}"
    elif inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.isfunction(value):
        yield _function(name, value)
    else:
        yield name


@dataclass(frozen=True)
class _AsWritten:
    """An annotation that `inspect` shows without quotes, on every Python."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _function(name: str, function: Callable[..., Any]) -> str:
    found = inspect.signature(function)
    parameters = [item.replace(annotation=_written(item.annotation)) for item in found.parameters.values()]
    shown = found.replace(parameters=parameters, return_annotation=_written(found.return_annotation))
    prefix = "async def" if inspect.iscoroutinefunction(function) else "def"
    return _ADDRESS.sub("", f"{prefix} {name}{shown}")


def _written(annotation: Any) -> Any:
    return _AsWritten(annotation) if isinstance(annotation, str) else annotation


if __name__ == "__main__":
    SNAPSHOT.write_text(api_text(), encoding="utf-8")
