"""Jobs that behave as hostile SQL can make a database's engine behave; workers import this file."""

from __future__ import annotations

import os
import signal
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.verification.connections import Connections


@dataclass(frozen=True)
class Who:
    """The worker's process."""

    def run(self, _connections: Connections) -> int:
        return os.getpid()


@dataclass(frozen=True)
class Meet:
    """Ends once the others have come too, which shows that they run at the same time."""

    others: int

    def run(self, _connections: Connections) -> int:
        Path("came").write_bytes(b"")
        while sum(Path(f"../{worker}/came").exists() for worker in range(1, 9)) < self.others:
            time.sleep(0.005)
        return os.getpid()


@dataclass(frozen=True)
class Hang:
    """Never answers. With ``after``, the clock is set anew first."""

    after: float | None = None

    def run(self, connections: Connections) -> None:
        if self.after is not None:
            connections.clock(self.after)
        while True:
            time.sleep(60)


@dataclass(frozen=True)
class Extend:
    """Takes longer than its first clock allows."""

    def run(self, connections: Connections) -> str:
        connections.clock(0.01)
        connections.clock(30)
        time.sleep(0.2)
        return "done"


@dataclass(frozen=True)
class Crash:
    """Ends its process, as an engine does over a broken file; with ``once``, the first time only."""

    once: bool = False

    def run(self, _connections: Connections) -> str:
        if self.once and Path.cwd().name != "1":  # the folders are numbered
            return "done"
        os.kill(os.getpid(), signal.SIGSEGV)
        raise AssertionError


@dataclass(frozen=True)
class Hoard:
    """Takes more memory than there is."""

    def run(self, _connections: Connections) -> int:
        return len(bytearray(1 << 40))


@dataclass(frozen=True)
class Write:
    """Makes a file of a gigabyte."""

    def run(self, _connections: Connections) -> str:
        try:
            with Path("file").open("wb") as file:
                file.truncate(1 << 30)  # takes no space
        except OSError as error:
            return type(error).__name__
        return "written"


@dataclass(frozen=True)
class Bug:
    """Fails by a fault of ours."""

    def run(self, _connections: Connections) -> None:
        raise KeyError("a fault of ours")


@dataclass(frozen=True)
class Recurse:
    """As a parser over deeply nested text."""

    def run(self, connections: Connections) -> None:
        self.run(connections)


@dataclass(frozen=True)
class Refuse:
    """A query's own failure."""

    def run(self, _connections: Connections) -> None:
        raise QueryError(Failure.REFUSED, "it would write")


@dataclass(frozen=True)
class Large:
    """A large result."""

    size: int

    def run(self, _connections: Connections) -> bytes:
        return bytes(self.size)


@dataclass(frozen=True)
class Echo:
    """A large job."""

    data: bytes

    def run(self, _connections: Connections) -> int:
        return len(self.data)


@dataclass(frozen=True)
class Share:
    """What came for it and other jobs."""

    def run(self, connections: Connections) -> int:
        return int(connections.shared())


@dataclass(frozen=True)
class Reach:
    """What a hostile query could reach if it took over its engine."""

    path: str

    def run(self, _connections: Connections) -> dict[str, str]:
        return {
            "read": _tried(lambda: Path(self.path).read_text()),
            "write": _tried(lambda: Path(self.path).write_text("x")),
            "start": _tried(lambda: os.execv("/bin/true", ["true"])),
            "connect": _tried(lambda: socket.create_connection(("127.0.0.1", 9), 1)),
            "variables": " ".join(sorted(os.environ)),
        }


def _tried(work: Callable[[], object]) -> str:
    try:
        return f"did: {work()}"
    except OSError as error:
        return type(error).__name__


@dataclass(frozen=True)
class Trespass:
    """Writes into the other workers' folders."""

    def run(self, _connections: Connections) -> tuple[str, ...]:
        others = (Path("..", name, "left") for name in ("1", "2") if name != Path.cwd().name)
        return tuple(_tried(partial(other.write_text, "x")) for other in others)


@dataclass(frozen=True)
class Forge:
    """Answers as an engine that has been taken over can."""

    answer: bytes

    def run(self, connections: Connections) -> None:
        socket.socket(fileno=os.dup(self._connection())).sendall(self.answer)
        raise AssertionError

    @staticmethod
    def _connection() -> int:
        opened = [number for number in range(64) if _is_socket(number)]
        return opened[-1]


def _is_socket(number: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False
