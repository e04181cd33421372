"""Keeps the servers of all replicas running, and gives up over one that cannot run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlfactory_core.errors import BackendError
from rlfactory_core.reporting.progress import Progress
from rlfactory_judge.serving.hints import is_final, port_taken
from rlfactory_judge.serving.ports import free_ports
from rlfactory_judge.serving.process import ServerProcess
from rlfactory_judge.serving.readiness import EndedError, HopelessError, ended, is_healthy, wait_until_ready
from rlfactory_judge.serving.servers import Launch, Replica
from rlfactory_judge.serving.stages import tell_stages

_INDENT = "\n    "


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the supervisor waits for what, in seconds."""

    ready_s: float = 1800.0  # for a server's first answer: large models load for many minutes
    failures: int = 3  # in a row, of one replica, after which everything ends
    backoff_s: float = 1.0  # before the first new start; doubles with each failure in a row
    backoff_most_s: float = 30.0
    calm_s: float = 120.0  # a server that has run for so long starts with a clean sheet
    look_s: float = 0.2  # between looks at the process
    health_s: float = 5.0  # between looks at its health
    sick_s: float = 120.0  # without health for so long, it counts as hung and is started anew


class Supervisor:
    """Starts one server a replica and watches over them.

    Args:
        launch: how a replica's server is started.
        model: the id that requests name.
        logs: an existing folder for the servers' output.
        movable: whether a replica may take another port until all are ready.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        launch: Callable[[Replica], Launch],
        *,
        model: str,
        logs: Path,
        progress: Progress,
        movable: bool = False,
        patience: Patience = Patience(),
    ) -> None:
        self._replicas = list(replicas)
        self._launch = launch
        self._model = model
        self._logs = logs
        self._progress = progress
        self._movable = movable
        self._patience = patience
        self._processes: dict[int, ServerProcess] = {}
        self._ready: set[int] = set()
        self._all_ready = asyncio.Event()

    @property
    def urls(self) -> tuple[str, ...]:
        """One a replica; settled once all are ready."""
        return tuple(replica.url for replica in self._replicas)

    def log(self, position: int) -> Path:
        """The file with a replica's output, over all its starts."""
        return self._logs / f"replica-{position}.log"

    async def run(self, ready: Callable[[], None]) -> None:
        """Keep the servers running until this is cancelled; none is left when it returns.

        Args:
            ready: called once, when all replicas have answered.

        Raises:
            BackendError: a replica has failed too often in a row, or in a way that no new start mends.
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
                process.hang_up()
            await asyncio.gather(first, *keepers, return_exceptions=True)
            await asyncio.gather(*(asyncio.to_thread(process.stop) for process in self._processes.values()))

    async def _keep(self, position: int) -> None:
        """Start a replica's server, again and again."""
        failures = 0
        while True:
            error, served_s = await self._serve_once(position)
            failures = 1 if served_s > self._patience.calm_s else failures + 1
            hopeless = position not in self._ready and _is_hopeless(error)
            if hopeless or failures >= self._patience.failures:
                times = f" {failures} times in a row" if failures > 1 else ""
                raise BackendError(f"Replica {position} has failed{times}. {error}") from error
            delay_s = min(self._patience.backoff_s * 2 ** (failures - 1), self._patience.backoff_most_s)
            self._say(position, f"{str(error).replace(chr(10), _INDENT)}\n  Starting it again in {delay_s:g} s.")
            if self._movable and not self._all_ready.is_set() and _lacks_port(error):
                (port,) = free_ports(self._replicas[position].host, 1)
                self._replicas[position] = replace(self._replicas[position], port=port)
            await asyncio.sleep(delay_s)

    async def _serve_once(self, position: int) -> tuple[BackendError, float]:
        """One server from its start to its end: why it has ended, and for how many seconds it has answered."""
        replica = self._replicas[position]
        launch = self._launch(replica)
        began = time.monotonic()
        process = ServerProcess(launch.command, launch.environment, self.log(position))
        self._processes[position] = process
        stages = asyncio.ensure_future(tell_stages(process, lambda text: self._say(position, text)))
        try:
            await wait_until_ready(process, replica.probe_url, self._model, self._patience.ready_s)
        except BackendError as error:
            return error, 0.0
        else:
            stages.cancel()
            answers = time.monotonic()
            self._count_ready(position, answers - began)
            return await self._watch(process, replica), time.monotonic() - answers
        finally:
            stages.cancel()
            process.hang_up()
            await asyncio.to_thread(process.stop)

    def _count_ready(self, position: int, seconds: float) -> None:
        self._say(position, f"answers at {self._replicas[position].url} after {seconds:.0f} s")
        if position not in self._ready:
            self._ready.add(position)
            self._progress.advance()
            if len(self._ready) == len(self._replicas):
                self._all_ready.set()

    async def _watch(self, process: ServerProcess, replica: Replica) -> BackendError:
        """Return when the server has ended, or has hung for long."""
        import httpx

        patience = self._patience
        well = looked = time.monotonic()
        async with httpx.AsyncClient(trust_env=False) as client:
            while process.exit_code is None:
                await asyncio.sleep(patience.look_s)
                if time.monotonic() - looked < patience.health_s:
                    continue
                if await is_healthy(client, replica.probe_url):
                    well = time.monotonic()
                elif time.monotonic() - well > patience.sick_s:
                    return BackendError(
                        f"The server at {replica.url} has not been healthy for {patience.sick_s:g} s. Its log is "
                        f"{process.log}, and ends with:\n{process.last_lines()}"
                    )
                looked = time.monotonic()
        return ended(process)

    def _say(self, position: int, text: str) -> None:
        self._progress.say(f"  replica {position}: {text}")


def _is_hopeless(error: BackendError) -> bool:
    return isinstance(error, HopelessError) or (isinstance(error, EndedError) and is_final(error.words))


def _lacks_port(error: BackendError) -> bool:
    return isinstance(error, EndedError) and port_taken(error.words)
