"""Documents to search: a JSONL file in Search-R1's format, or a list in memory.

A line is ``{"id": "7", "contents": "title\\ntext"}``. Files are memory-mapped rather than loaded, so they may hold
millions of passages. The byte offset of each document is kept in the cache.
"""

from __future__ import annotations

import json
import mmap
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from rlfactory_core.cache import build_once, cache_root, digest, file_digest
from rlfactory_core.errors import DataError

_FORMAT = '{"id": "0", "contents": "title\\ntext"}'


@dataclass(frozen=True, slots=True)
class Document:
    """One passage; the first line of ``contents`` is its title, which Search-R1's corpora put in quotes."""

    id: str
    contents: str

    @property
    def title(self) -> str:
        line = self.contents.partition("\n")[0]
        return line[1:-1] if len(line) > 1 and line[0] == line[-1] == '"' else line

    @property
    def text(self) -> str:
        return self.contents.partition("\n")[2]


class Corpus(Protocol):
    """Documents by number. Documents with equal scores are ranked by this number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Document: ...

    def __iter__(self) -> Iterator[Document]: ...

    @property
    def fingerprint(self) -> str:
        """A hash of the documents and their order."""
        ...


class MemoryCorpus:
    """A list of documents, for example of a built-in world."""

    def __init__(self, documents: Sequence[Document]) -> None:
        if not documents:
            raise DataError("The corpus is empty: a list of 0 documents. Give at least one.")
        self._documents = tuple(documents)

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, index: int) -> Document:
        return self._documents[index]

    def __iter__(self) -> Iterator[Document]:
        return iter(self._documents)

    @cached_property
    def fingerprint(self) -> str:
        return digest(part for document in self._documents for part in (document.id, document.contents))


class FileCorpus:
    """A JSONL file. A document is read and parsed each time it is needed.

    Args:
        path: the file.
        cache: where the offsets are kept; default `cache_root`.

    Raises:
        DataError: the file does not exist, is a folder, or has no document. A bad line raises when it is read.
    """

    def __init__(self, path: Path | str, cache: Path | None = None) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            what = "is a folder" if self.path.is_dir() else "does not exist"
            raise DataError(f"The corpus {self.path} {what}. Expected a JSONL file with lines like {_FORMAT}.")
        if self.path.stat().st_size == 0:
            raise self._empty()
        root = cache or cache_root()
        self.fingerprint = file_digest(self.path, root)
        offsets = build_once(root / "corpora" / self.fingerprint, self._write_offsets) / "offsets.u64"
        with self.path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with offsets.open("rb") as file:
            self._offsets = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)).cast("Q")

    def _empty(self) -> DataError:
        return DataError(f"The corpus {self.path} is empty. Expected a document in each line: {_FORMAT}.")

    def _write_offsets(self, folder: Path) -> None:
        """Byte offset of every line that is not blank, in the machine's own byte order."""
        offsets, position = array("Q"), 0
        with self.path.open("rb") as file:
            for line in file:
                if not line.isspace():
                    offsets.append(position)
                position += len(line)
        if not offsets:
            raise self._empty()
        (folder / "offsets.u64").write_bytes(offsets.tobytes())

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> Document:
        start = self._offsets[index]
        end = self._bytes.find(b"\n", start)
        return self._parse(self._bytes[start : end if end >= 0 else len(self._bytes)], start)

    def __iter__(self) -> Iterator[Document]:
        return map(self.__getitem__, range(len(self)))

    def _parse(self, line: bytes, start: int) -> Document:
        try:
            row: Any = json.loads(line)
        except ValueError as error:
            raise self._bad(start, f"not JSON ({error})") from None
        if not isinstance(row, dict):
            raise self._bad(start, f"found {type(row).__name__}")
        for key in ("id", "contents"):
            if key not in row:
                raise self._bad(start, f"no key {key!r}, found the keys {sorted(row)}")
        if not isinstance(row["contents"], str):
            raise self._bad(start, f"'contents' is {type(row['contents']).__name__}, not text")
        return Document(str(row["id"]), row["contents"])

    def _bad(self, start: int, what: str) -> DataError:
        number, position = 1, 0
        with self.path.open("rb") as file:
            while position < start:
                position += len(file.readline())
                number += 1
        return DataError(f"{self.path}, line {number}: {what}. Expected an object like {_FORMAT}.")
