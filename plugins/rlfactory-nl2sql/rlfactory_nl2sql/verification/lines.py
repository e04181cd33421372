"""The lines of JSON that a worker or its fork server sends, as its client reads them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

__all__ = ["LineReader"]

_AT_ONCE = 1 << 16  # bytes


class LineReader:
    """Hands over each line of a non-blocking socket in the event loop's own callback, which wakes no task.

    Args:
        most: bytes of one line, to bound the memory.
        on_line: gets each line without its end.
        on_end: called once when no more come: `EOFError`, `OSError`, or `ValueError` for a line that is too long.
    """

    def __init__(
        self,
        connection: socket.socket,
        most: int,
        on_line: Callable[[bytes | bytearray], None],
        on_end: Callable[[Exception], None],
    ) -> None:
        self._connection, self._most, self._on_line, self._on_end = connection, most, on_line, on_end
        self._came = bytearray()
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()
        self._loop.add_reader(connection, self._read)

    def close(self) -> None:
        """Close the socket, here only if this is a fork: it shares the selector of the process that reads on."""
        if self._connection.fileno() >= 0 and self._process == os.getpid():
            self._loop.remove_reader(self._connection)
        self._connection.close()

    def _read(self) -> None:
        try:
            more = self._connection.recv(_AT_ONCE)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error)
            return
        if not more:
            self._end(EOFError())
            return
        self._came += more
        if b"\n" in more:
            *lines, self._came = self._came.split(b"\n")
            for line in lines:
                if self._connection.fileno() >= 0:  # a line before may have led to `close`
                    self._on_line(line)
        if len(self._came) > self._most and self._connection.fileno() >= 0:
            self._end(ValueError(f"a line of more than {self._most:,} bytes"))

    def _end(self, error: Exception) -> None:
        self.close()
        self._on_end(error)
