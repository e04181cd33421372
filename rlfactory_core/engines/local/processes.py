"""Worker processes for data parallelism on the CPU: started by rank 0, gone when it is gone."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from rlfactory_core.config import RunConfig
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.errors import RlfactoryError, RunStopped, TrainingError, UsageError
from rlfactory_core.plugins.fingerprint import Fingerprint

Program = Callable[[RunConfig, str, Workers, Sequence[Fingerprint], bool], None]
"""What every worker runs: (config, run folder, workers, the driver's plugin fingerprints, resume)."""

Failure = tuple[int, str]
"""What a worker tells of its end: the exit code and the text."""

GRACE_S = 10  # for a process to end by itself
MOURNING_S = 2  # for a dead process to be known as one
MAX_FAILURE = 16_000  # characters; the queue's pipe holds 64 kB while nobody reads


@contextlib.contextmanager
def worker_processes(
    program: Program, config: RunConfig, folder: str, fingerprints: Sequence[Fingerprint], resume: bool
) -> Iterator[Workers]:
    """Start ``config.train.workers - 1`` processes and join them as rank 0.

    Raises:
        UsageError: only a worker met something that the user can mend.
        TrainingError: a worker failed; its traceback is in the message.
    """
    size = config.train.workers
    if size == 1:
        yield Workers()
        return
    context = multiprocessing.get_context("spawn")
    failures: multiprocessing.SimpleQueue[Failure] = context.SimpleQueue()
    address = f"127.0.0.1:{_free_port()}"
    peers: list[tuple[BaseProcess, Connection]] = []
    workers = None
    try:
        for rank in range(1, size):
            here, there = context.Pipe(duplex=False)
            args = (program, config, folder, fingerprints, resume, rank, size, address, there, failures)
            process: BaseProcess = context.Process(
                target=_worker, args=args, daemon=True, name=f"rlfactory-worker-{rank}"
            )
            process.start()
            there.close()
            peers.append((process, here))
        for process, started in peers:
            _wait_for_start(process, started)
        workers = Workers(0, size, address)
        yield workers
        workers.close()
        for process, _ in peers:
            process.join(GRACE_S)
    except RlfactoryError:
        raise  # rank 0's own; the workers have met the same, or wait for it in vain
    except Exception as error:
        failure = _first_failure(failures, [process for process, _ in peers])
        if failure is not None:
            raise failure from error
        raise
    finally:
        for process, started in peers:
            started.close()
            process.kill()
            process.join()
        if workers is not None:
            workers.close()


def _wait_for_start(process: BaseProcess, started: Connection) -> None:
    """A process that dies while it starts would be waited for in vain by the collectives."""
    try:
        started.recv()
    except EOFError:
        process.join()
        raise TrainingError(
            f"{process.name} ended with exit code {process.exitcode} before it began; what it wrote stands above."
        ) from None


def _first_failure(
    failures: multiprocessing.SimpleQueue[Failure], processes: Sequence[BaseProcess]
) -> RlfactoryError | None:
    """A dead peer shows in rank 0 only as a lost connection; what the first of them died of is in the queue."""
    wait([process.sentinel for process in processes], MOURNING_S)
    if not failures.empty():
        exit_code, text = failures.get()
        known = exit_code == UsageError.exit_code
        return UsageError(text) if known else TrainingError(f"A worker process failed:\n{text}")
    for process in processes:
        if process.exitcode:
            return TrainingError(
                f"{process.name} ended with exit code {process.exitcode}. {_meaning(process.exitcode)}"
            )
    return None


def _meaning(exit_code: int) -> str:
    if exit_code == -signal.SIGKILL:
        return "It was killed, perhaps for want of memory: lower train.workers, or rollout.slots."
    return "It wrote no reason."


def _worker(
    program: Program,
    config: RunConfig,
    folder: str,
    fingerprints: Sequence[Fingerprint],
    resume: bool,
    rank: int,
    size: int,
    address: str,
    started: Connection,
    failures: multiprocessing.SimpleQueue[Failure],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; rank 0 decides for all
    _die_with_parent()
    started.send(rank)
    try:
        workers = Workers(rank, size, address)
        program(config, folder, workers, fingerprints, resume)
        workers.close()
    except RunStopped:
        return
    except Exception as error:  # noqa: BLE001 - the boundary of the process: everything goes to rank 0
        known = isinstance(error, RlfactoryError) and error.exit_code == UsageError.exit_code
        text = str(error) if known else traceback.format_exc()
        failures.put((UsageError.exit_code if known else 1, text[-MAX_FAILURE:]))
        os._exit(1)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
