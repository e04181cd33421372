"""Jobs for the tests of the workers, which have to import them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.verification.connections import Connections


@dataclass(frozen=True)
class Call:
    """A call of one of the functions below."""

    ref: DatabaseRef
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    seconds: float = 60.0

    def run(self, _connections: Connections) -> Any:
        return self.function(*self.arguments)


def place() -> int:
    return os.getpid()


def die() -> None:
    os._exit(1)


def hang() -> None:
    time.sleep(1000)


def refuse() -> None:
    raise QueryError(Failure.REFUSED, "not this one")


def blunder() -> None:
    raise ZeroDivisionError("a bug of ours")


def hoard() -> int:
    return len(bytearray(1 << 32))


def variable(name: str) -> str | None:
    return os.environ.get(name)


def file(path: str) -> str:
    return Path(path).read_text()


def connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=1).close()
