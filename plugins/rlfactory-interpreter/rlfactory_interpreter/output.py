"""Read a process's output as fast as it comes, and keep only its beginning and end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import os

_CHUNK = 64 * 1024
_CAPACITY = 1024 * 1024  # requested size of the pipe
_MOST_READS = 2 * _CAPACITY // _CHUNK  # in one go, because the writer may never stop
_PAUSE_S = 0.002  # between two reads: each has a cost for the event loop, however little it reads


class Output:
    """The beginning and the end of what a pipe delivers, at most ``limit`` bytes in all."""

    def __init__(self, pipe: io.FileIO, limit: int) -> None:
        os.set_blocking(pipe.fileno(), False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CAPACITY)
        self._pipe = pipe
        self._head_size = limit // 2
        self._tail_size = limit - self._head_size
        self._head, self._tail, self._total = b"", b"", 0
        self._next_look: asyncio.TimerHandle | None = None

    def listen(self) -> None:
        """Start reading, so that the writer never waits for long."""
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._look)

    def pause(self) -> None:
        """Stop reading; new output stays in the pipe."""
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        if self._next_look is not None:
            self._next_look.cancel()

    def take(self) -> str:
        """The output since the last call, as text."""
        self._read()
        left_out = self._total - len(self._head) - len(self._tail)
        mark = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
        data = self._head + mark + self._tail
        self._head, self._tail, self._total = b"", b"", 0
        return data.decode(errors="replace")

    def close(self) -> None:
        self._pipe.close()

    def _look(self) -> None:
        self.pause()
        self._read()
        self._next_look = asyncio.get_running_loop().call_later(_PAUSE_S, self.listen)

    def _read(self) -> None:
        """Read what is available, without waiting."""
        for _ in range(_MOST_READS):
            try:
                data = os.read(self._pipe.fileno(), _CHUNK)
            except BlockingIOError:
                return
            if not data:
                return
            self._total += len(data)
            missing = self._head_size - len(self._head)
            self._head += data[:missing]
            rest = data[missing:]
            if rest:
                self._tail = (self._tail + rest[-self._tail_size :])[-self._tail_size :]
