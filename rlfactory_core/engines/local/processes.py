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
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from rlfactory_core.config import RunConfig
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.errors import RunStopped, TrainingError
from rlfactory_core.plugins.fingerprint import Fingerprint

Program = Callable[[RunConfig, str, Workers, Sequence[Fingerprint], bool], None]
"""What every worker runs: (config, run folder, workers, the driver's plugin fingerprints, resume)."""


@contextlib.contextmanager
def worker_processes(
    program: Program, config: RunConfig, folder: str, fingerprints: Sequence[Fingerprint], resume: bool
) -> Iterator[Workers]:
    """Start ``config.train.workers - 1`` processes and join them as rank 0.

    Raises:
        TrainingError: a worker failed; its traceback is in the message.
    """
    size = config.train.workers
    if size == 1:
        yield Workers()
        return
    context = multiprocessing.get_context("spawn")
    errors = context.SimpleQueue()
    address = f"127.0.0.1:{_free_port()}"
    processes: list[BaseProcess] = []
    for rank in range(1, size):
        args = (program, config, folder, fingerprints, resume, rank, size, address, errors)
        process = context.Process(target=_worker, args=args, daemon=True, name=f"rlfactory-worker-{rank}")
        process.start()
        processes.append(process)
    try:
        workers = Workers(0, size, address)
        yield workers
        workers.close()
        for process in processes:
            process.join(30)
    except RunStopped:
        for process in processes:
            process.join(30)
        raise
    except Exception as error:
        # A dead peer shows here only as a lost connection; what it died of is in the queue.
        for process in processes:
            process.join(2)
        if not errors.empty():
            raise TrainingError(f"A worker process failed:\n{errors.get()}") from error
        raise
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()


def _worker(
    program: Program,
    config: RunConfig,
    folder: str,
    fingerprints: Sequence[Fingerprint],
    resume: bool,
    rank: int,
    size: int,
    address: str,
    errors: multiprocessing.SimpleQueue[str],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; rank 0 decides for all
    _die_with_parent()
    try:
        workers = Workers(rank, size, address)
        program(config, folder, workers, fingerprints, resume)
        workers.close()
    except RunStopped:
        return
    except Exception:  # noqa: BLE001 - the boundary of the process: everything goes to rank 0
        errors.put(traceback.format_exc())
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
