"""The header of a GGUF file: its metadata and the list of its tensors, without their data.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The reader of the package gguf takes seconds for a
large vocabulary, because it makes an array of each text.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from rlfactory_core.errors import ModelError

MAGIC = b"GGUF"
SUFFIX = ".gguf"
_VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_ALIGNMENT = 32  # bytes, unless the metadata has another number


@dataclass(frozen=True, slots=True)
class Tensor:
    """What the header has of a tensor."""

    shape: tuple[int, ...]  # the innermost dimension first
    kind: int  # of its numbers, see `gguf.GGMLQuantizationType`
    offset: int  # bytes from the beginning of the file

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    """The metadata and the tensors by name. Of an array of texts the metadata has the length."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))


def is_gguf(model: str | None) -> bool:
    """Whether the name of a model is that of a GGUF file."""
    return model is not None and model.lower().endswith(SUFFIX)


def read_header(path: Path) -> Header:
    """
    Raises:
        ModelError: there is no such file, or it is no GGUF file, or damaged.
    """
    if not path.is_file():
        raise ModelError(f"There is no file '{path}'. Give --model a .gguf file, a model folder or a hub id.")
    with path.open("rb") as file:
        if (found := file.read(4)) != MAGIC:
            raise ModelError(f"'{path}' is no GGUF file: it begins with {found!r} instead of {MAGIC!r}. {_AGAIN}")
        try:
            return _read(file)
        except (struct.error, UnicodeDecodeError, KeyError, OverflowError, MemoryError) as error:
            raise ModelError(f"The GGUF file '{path}' is damaged or cut off in its header. {_AGAIN}") from error


_AGAIN = "Download it again."


def _read(file: BinaryIO) -> Header:
    (version,) = _numbers(file, "I")
    if version not in _VERSIONS:
        raise ModelError(
            f"'{file.name}' has version {version} of GGUF; versions 2 and 3 can be read. Take a newer conversion."
        )
    tensors, keys = _numbers(file, "QQ")
    metadata = {_text(file): _value(file, *_numbers(file, "I")) for _ in range(keys)}
    found = {}
    for _ in range(tensors):
        name, (dimensions,) = _text(file), _numbers(file, "I")
        found[name] = (_numbers(file, f"{dimensions}Q"), *_numbers(file, "IQ"))
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    start = -(-file.tell() // alignment) * alignment
    return Header(metadata, {name: Tensor(shape, kind, start + at) for name, (shape, kind, at) in found.items()})


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _TEXT:
        return _text(file)
    if kind != _ARRAY:
        return _numbers(file, _NUMBERS[kind])[0]
    kind, length = _numbers(file, "IQ")
    if kind not in (_TEXT, _ARRAY):
        return _numbers(file, f"{length}{_NUMBERS[kind]}")
    for _ in range(length):
        if kind == _ARRAY:
            _value(file, kind)
        else:
            file.seek(_numbers(file, "Q")[0], 1)
    return length


def _text(file: BinaryIO) -> str:
    (length,) = _numbers(file, "Q")
    return _bytes(file, length).decode()


def _numbers(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    return struct.unpack(f"<{layout}", _bytes(file, struct.calcsize(f"<{layout}")))


def _bytes(file: BinaryIO, length: int) -> bytes:
    data = file.read(length)
    if len(data) < length:
        raise struct.error
    return data
