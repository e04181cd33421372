"""Jobs that behave as hostile code can; the processes of pools import this file."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def program() -> Callable[[bytes], bytes]:
    jobs = Jobs()

    def answer(job: bytes) -> bytes:
        kind, *arguments = json.loads(job)
        return json.dumps(getattr(jobs, kind)(*arguments)).encode()

    return answer


class Jobs:
    counted = 0

    def who(self) -> int:
        return os.getpid()

    def parent(self) -> int:
        return os.getppid()

    def count(self) -> int:
        self.counted += 1
        return self.counted

    def meet(self, others: int) -> int:
        """End once the others have come too, which shows that they run at the same time."""
        Path("came").write_bytes(b"")
        while sum(Path(f"../{worker}/came").exists() for worker in range(1, 9)) < others:
            time.sleep(0.005)
        return os.getpid()

    def hang(self) -> None:
        while True:
            time.sleep(60)

    def crash(self) -> None:
        os.abort()

    def crash_in(self, folder: str) -> str:
        """Crash only in the process with this folder; the fork server numbers them."""
        if Path.cwd().name == folder:
            os.abort()
        return "done"

    def send(self, text: str) -> None:
        os.write(3, text.encode("latin-1"))
        self.hang()

    def size(self, text: str) -> int:
        return len(text)

    def large(self, size: int) -> str:
        return "x" * size

    def reach(self, secret: str) -> dict[str, Any]:
        found: dict[str, Any] = {"variables": "API_KEY" in os.environ}
        for name, work in {
            "read": lambda: Path(secret).read_text(),
            "write": lambda: Path(secret).with_name("written").write_bytes(b""),
            "start": os.fork,
            "connect": lambda: socket.socket().connect(("127.0.0.1", 9)),
            "memory": lambda: len(bytes(256 << 20)),
            "large_file": lambda: Path("large").write_bytes(bytes(2 << 20)),
        }.items():
            try:
                found[name] = work()
            except (OSError, MemoryError):
                found[name] = "refused"
        return found
