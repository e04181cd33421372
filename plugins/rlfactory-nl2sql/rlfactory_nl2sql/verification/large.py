"""Large bytes of jobs, such as a gold query's answers: each worker is sent them once, and keeps those used last."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from typing import Any

_LARGE = 1024  # bytes; smaller ones are sent each time
_KEPT = 32 << 20  # bytes in all


class LargeBytes:
    """What one worker has been sent. Both sides have one, use it in the same order, and so forget the same."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, bytes] = OrderedDict()  # least recently used first
        self._numbers: dict[bytes, int] = {}
        self._next = self._size = 0

    def number(self, data: bytes) -> int | None:
        """The number under which the other side has these bytes; None if it does not have them."""
        return self._numbers.get(data)

    def use(self, number: int) -> bytes:
        self._known.move_to_end(number)
        return self._known[number]

    def add(self, data: bytes) -> None:
        self._known[self._next] = data
        self._numbers[data] = self._next
        self._next += 1
        self._size += len(data)
        while self._size > _KEPT:
            _, oldest = self._known.popitem(last=False)
            del self._numbers[oldest]
            self._size -= len(oldest)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, sent: LargeBytes) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._sent = sent

    def persistent_id(self, value: Any) -> int | bytes | None:
        if type(value) is not bytes or len(value) < _LARGE:
            return None
        number = self._sent.number(value)
        if number is None:
            self._sent.add(value)
            return value
        self._sent.use(number)
        return number


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, kept: LargeBytes) -> None:
        super().__init__(file)
        self._kept = kept

    def persistent_load(self, sent: int | bytes) -> bytes:
        if isinstance(sent, int):
            return self._kept.use(sent)
        self._kept.add(sent)
        return sent


def dump_job(request: Any, sent: LargeBytes) -> bytes:
    """Pickle a job for the worker that has been ``sent`` these bytes."""
    file = io.BytesIO()
    _Pickler(file, sent).dump(request)
    return file.getvalue()


def load_job(data: bytes, kept: LargeBytes) -> Any:
    """The job; for a worker, from the process that it works for."""
    return _Unpickler(io.BytesIO(data), kept).load()
