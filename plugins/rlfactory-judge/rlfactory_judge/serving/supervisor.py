"""Keep a server running: start it again after it has ended or hung, and give up where that does not help."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlfactory_core.errors import BackendError
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_judge.serving.process import ServerProcess
from rlfactory_judge.serving.readiness import wait_until_ill, wait_until_ready
from rlfactory_judge.serving.servers import Address, Launch

_OPTIONS = (
    "Options of the server go after --, such as -- --max-model-len 8192 --gpu-memory-utilization 0.95 where vLLM finds "
    "too little memory."
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The supervisor's waiting times in seconds."""

    ready_s: float = 1800.0  # for a server's first answer: large models load for many minutes
    failures: int = 3  # in a row, after which it gives up
    backoff_s: float = 1.0  # before the first restart; doubles with each failure in a row
    backoff_most_s: float = 30.0
    calm_s: float = 120.0  # after this time of operation, earlier failures no longer count
    health_s: float = 1.0  # between health checks
    sick_s: float = 120.0  # an unhealthy server counts as hung after this time, and is restarted


@dataclass(frozen=True, slots=True)
class Server:
    """What is to be kept running.

    Args:
        model: the id that requests name.
        log: the file with its output of all starts, in an existing folder.
    """

    model: str
    address: Address
    launch: Launch
    log: Path

    def start(self) -> ServerProcess:
        """Start its process."""
        return ServerProcess(self.launch.command, self.launch.environment, self.log)


async def keep_serving(
    server: Server, ready: Callable[[], None], say: Callable[[str], None], timeouts: Timeouts = Timeouts()
) -> None:
    """Keep a server running until this is cancelled. It has ended when this returns.

    Args:
        ready: called once, when it answers.

    Raises:
        BackendError: it does not get ready at its first start, or has failed too often in a row later.
    """
    answered, failures = asyncio.Event(), 0

    def answers(seconds: float) -> None:
        say(f"  answers at {server.address.url} after {seconds:.0f} s")
        if not answered.is_set():
            answered.set()
            ready()

    while True:
        error, served_s = await _serve_once(server, answers, timeouts)
        if not answered.is_set():
            raise BackendError(f"{error}\n{_OPTIONS}") from error
        failures = 1 if served_s > timeouts.calm_s else failures + 1
        if failures >= timeouts.failures:
            raise BackendError(f"The server has failed {failures} times in a row. {error}\n{_OPTIONS}") from error
        delay_s = backoff_s(failures, timeouts.backoff_s, timeouts.backoff_most_s, least=1.0)
        say(f"  {error}\n  Starting it again in {delay_s:g} s.")
        await asyncio.sleep(delay_s)


async def _serve_once(
    server: Server, answers: Callable[[float], None], timeouts: Timeouts
) -> tuple[BackendError, float]:
    """Run it once. Returns why it ended, and for how many seconds it was ready."""
    url = server.address.probe_url
    process, began = server.start(), time.monotonic()
    try:
        await wait_until_ready(process, url, server.model, timeouts.ready_s)
        since = time.monotonic()
        answers(since - began)
        error = await wait_until_ill(process, url, timeouts.health_s, timeouts.sick_s)
        return error, time.monotonic() - since
    except BackendError as error:
        return error, 0.0
    finally:
        process.request_stop()  # before any waiting, which may be cancelled
        await asyncio.to_thread(process.stop)
