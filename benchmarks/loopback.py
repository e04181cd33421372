"""A server that answers like a judge after a chosen while, in a process of its own; a part of `judge`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MAX_TOKENS = 8  # of a reply


class LoopbackServer:
    """Answers ``/SECONDS/SPREAD/SLOTS/v1/…``: so many requests at once, each in the time that its bytes decide."""

    def __init__(self) -> None:
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._bodies: set[int] = set()

    async def run(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=512)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                path = head.split(b" ", 2)[1].decode()
                size = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
                answer = json.dumps(await self._answer(path, await reader.readexactly(size))).encode()
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
                writer.write(head + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, path: str, body: bytes) -> dict[str, Any]:
        if path == "/bodies":
            seen, self._bodies = len(self._bodies), set()
            return {"distinct": seen}
        if not body:
            return {"object": "list", "data": [{"id": "judge", "object": "model"}]}
        seconds, spread, slots = path.split("/")[1:4]
        drawn = zlib.crc32(body)
        self._bodies.add(drawn)
        async with self._slots.setdefault(path, asyncio.Semaphore(int(slots))):
            await asyncio.sleep(float(seconds) * (1.0 + float(spread) * (drawn / 2**31 - 1.0)))
        message = {"role": "assistant", "content": '{"score": 7}'}
        usage = {"prompt_tokens": len(body) // 4, "completion_tokens": MAX_TOKENS}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}


def end_with_parent() -> None:
    """The parent holds the other end of the standard input."""
    sys.stdin.read()
    os._exit(0)


@contextmanager
def loopback_server() -> Iterator[str]:
    """Its address, without the part that says how it answers."""
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    asyncio.run(LoopbackServer().run())
