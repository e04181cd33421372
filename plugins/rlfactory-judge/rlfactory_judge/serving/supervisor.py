"""Keep the servers of all replicas running; fail if one cannot run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlfactory_core.errors import BackendError
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_judge.serving.hints import is_final, port_taken
from rlfactory_judge.serving.machine import free_ports
from rlfactory_judge.serving.process import ServerProcess
from rlfactory_judge.serving.readiness import (
    EndedError,
    PermanentError,
    ended,
    is_healthy,
    report_stages,
    wait_until_ready,
)
from rlfactory_judge.serving.servers import Launch, Replica

_INDENT = "\n    "


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The supervisor's waiting times in seconds."""

    ready_s: float = 1800.0  # for a server's first answer: large models load for many minutes
    failures: int = 3  # of one replica in a row, after which all servers are stopped
    backoff_s: float = 1.0  # before the first restart; doubles with each failure in a row
    backoff_most_s: float = 30.0
    calm_s: float = 120.0  # after this time of operation, earlier failures no longer count
    look_s: float = 0.2  # between checks of the process
    health_s: float = 5.0  # between health checks
    sick_s: float = 120.0  # an unhealthy server counts as hung after this time, and is restarted


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """The servers of one model, one for each replica."""

    model: str  # the id that requests name
    replicas: Sequence[Replica]
    launch: Callable[[Replica], Launch]  # says how to start a replica's server
    movable: bool = False  # whether a replica may take another port until all are ready


class Supervisor:
    """Starts the servers of a group and supervises them.

    Args:
        logs: an existing folder for the servers' output.
    """

    def __init__(self, group: ServerGroup, *, logs: Path, progress: Progress, timeouts: Timeouts = Timeouts()) -> None:
        self._group = group
        self._replicas = list(group.replicas)
        self._logs = logs
        self._progress = progress
        self._timeouts = timeouts
        self._processes: dict[int, ServerProcess] = {}
        self._ready: set[int] = set()
        self._all_ready = asyncio.Event()

    @property
    def urls(self) -> tuple[str, ...]:
        """One address per replica; final once all are ready."""
        return tuple(replica.url for replica in self._replicas)

    def log(self, position: int) -> Path:
        """The file with a replica's output of all its starts."""
        return self._logs / f"replica-{position}.log"

    async def run(self, ready: Callable[[], None]) -> None:
        """Keep the servers running until this is cancelled. All have ended when it returns.

        Args:
            ready: called once, when all replicas have answered.

        Raises:
            BackendError: a replica has failed too often in a row, or a restart would not help.
        """
        keepers = [asyncio.ensure_future(self._keep(position)) for position in range(len(self._replicas))]
        first = asyncio.ensure_future(self._all_ready.wait())
        try:
            await asyncio.wait([first, *keepers], return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                ready()
            await asyncio.gather(*keepers)
        finally:
            for task in (first, *keepers):
                task.cancel()
            for process in self._processes.values():
                process.request_stop()
            await asyncio.gather(first, *keepers, return_exceptions=True)
            await asyncio.gather(*(asyncio.to_thread(process.stop) for process in self._processes.values()))

    async def _keep(self, position: int) -> None:
        """Start a replica's server, and restart it after failures."""
        failures = 0
        while True:
            error, served_s = await self._serve_once(position)
            failures = 1 if served_s > self._timeouts.calm_s else failures + 1
            hopeless = position not in self._ready and _is_permanent(error)
            if hopeless or failures >= self._timeouts.failures:
                times = f" {failures} times in a row" if failures > 1 else ""
                raise BackendError(f"Replica {position} has failed{times}. {error}") from error
            delay_s = backoff_s(failures, self._timeouts.backoff_s, self._timeouts.backoff_most_s, least=1.0)
            self._say(position, f"{str(error).replace(chr(10), _INDENT)}\n  Starting it again in {delay_s:g} s.")
            if self._group.movable and not self._all_ready.is_set() and _lacks_port(error):
                (port,) = free_ports(self._replicas[position].host, 1)
                self._replicas[position] = replace(self._replicas[position], port=port)
            await asyncio.sleep(delay_s)

    async def _serve_once(self, position: int) -> tuple[BackendError, float]:
        """Run one server. Returns why it ended, and for how many seconds it was ready."""
        replica = self._replicas[position]
        launch = self._group.launch(replica)
        began = time.monotonic()
        process = ServerProcess(launch.command, launch.environment, self.log(position))
        self._processes[position] = process
        stages = asyncio.ensure_future(report_stages(process, lambda text: self._say(position, text)))
        try:
            await wait_until_ready(process, replica.probe_url, self._group.model, self._timeouts.ready_s)
        except BackendError as error:
            return error, 0.0
        else:
            stages.cancel()
            answers = time.monotonic()
            self._count_ready(position, answers - began)
            return await self._watch(process, replica), time.monotonic() - answers
        finally:
            stages.cancel()
            process.request_stop()
            await asyncio.to_thread(process.stop)

    def _count_ready(self, position: int, seconds: float) -> None:
        self._say(position, f"answers at {self._replicas[position].url} after {seconds:.0f} s")
        if position not in self._ready:
            self._ready.add(position)
            self._progress.advance()
            if len(self._ready) == len(self._replicas):
                self._all_ready.set()

    async def _watch(self, process: ServerProcess, replica: Replica) -> BackendError:
        """Return when the server has ended or is hung."""
        import httpx

        timeouts = self._timeouts
        well = looked = time.monotonic()
        async with httpx.AsyncClient(trust_env=False) as client:
            while process.exit_code is None:
                await asyncio.sleep(timeouts.look_s)
                if time.monotonic() - looked < timeouts.health_s:
                    continue
                if await is_healthy(client, replica.probe_url):
                    well = time.monotonic()
                elif time.monotonic() - well > timeouts.sick_s:
                    return BackendError(
                        f"The server at {replica.url} has not been healthy for {timeouts.sick_s:g} s. Its log is "
                        f"{process.log}, and ends with:\n{process.last_lines()}"
                    )
                looked = time.monotonic()
        return ended(process)

    def _say(self, position: int, text: str) -> None:
        self._progress.say(f"  replica {position}: {text}")


def _is_permanent(error: BackendError) -> bool:
    return isinstance(error, PermanentError) or (isinstance(error, EndedError) and is_final(error.words))


def _lacks_port(error: BackendError) -> bool:
    return isinstance(error, EndedError) and port_taken(error.words)
