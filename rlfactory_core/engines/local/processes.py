"""Worker processes for data parallelism on the CPU. Rank 0 starts them, and they end when it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.errors import RlfactoryError, RunStopped, TrainingError, UsageError
from rlfactory_core.utils.interrupt import SIGNALS

Program = Callable[[Workers], None]
"""What the further processes run: it can be pickled."""

Failure = tuple[int, str]
"""The last message of a failed worker: its exit code and the text of the error."""

GRACE_S = 10  # how long a process may take to end by itself
EXIT_S = 2  # how long to wait for the exit of a failed process
START_S = 300.0  # for a process to begin, on a busy machine
HEARTBEAT_S, SILENT_S = 5.0, 45.0  # between a worker's heartbeats, and without one until it is killed
MAX_FAILURE = 16_000  # characters; the queue's pipe holds 64 kB until it is read


@contextlib.contextmanager
def worker_processes(size: int, program: Program) -> Iterator[Workers]:
    """Start ``size - 1`` processes that run the program, and join them as rank 0.

    Raises:
        UsageError: a worker, and not rank 0, met an error that the user can fix.
        TrainingError: a worker failed; its traceback is in the message.
    """
    if size == 1:
        yield Workers()
        return
    context = multiprocessing.get_context("spawn")
    failures: multiprocessing.SimpleQueue[Failure] = context.SimpleQueue()
    peers: list[tuple[BaseProcess, Connection]] = []
    workers = None
    private = tempfile.TemporaryDirectory(prefix="rlf-workers-")
    rendezvous = Path(private.name, "rendezvous")
    try:
        for rank in range(1, size):
            here, there = context.Pipe(duplex=False)
            name = f"rlfactory-worker-{rank}"
            process: BaseProcess = context.Process(
                target=_worker, args=(program, rank, size, rendezvous, there, failures), daemon=True, name=name
            )
            process.start()
            there.close()
            peers.append((process, here))
        for process, started in peers:
            _wait_for_start(process, started)
        threading.Thread(target=_watch, args=(peers, failures), daemon=True).start()
        workers = Workers(0, size, rendezvous)
        yield workers
        workers.close()
        for process, _ in peers:
            process.join(GRACE_S)
    except RlfactoryError:
        raise  # rank 0's own error; the workers have met the same one, or wait for rank 0
    except Exception as error:
        failure = _first_failure(failures, [process for process, _ in peers])
        if failure is not None:
            raise failure from error
        raise
    finally:
        for process, _ in peers:
            process.kill()
            process.join()
        if workers is not None:
            workers.close()
        private.cleanup()


def _wait_for_start(process: BaseProcess, started: Connection) -> None:
    """The collectives would wait forever for a process that has died, or was stopped, while it started."""
    if not started.poll(START_S):
        raise TrainingError(f"{process.name} has not begun after {START_S:.0f} s.")
    try:
        started.recv()
    except EOFError:
        process.join()
        raise TrainingError(
            f"{process.name} ended with exit code {process.exitcode} before it began; its output is above."
        ) from None


def _watch(peers: Sequence[tuple[BaseProcess, Connection]], failures: multiprocessing.SimpleQueue[Failure]) -> None:
    """Kill a worker that sends no heartbeat, such as one that was stopped, because rank 0 would wait for it for ever.

    Ends when all workers have ended.
    """
    last = time.monotonic()
    heard, of = {sign: last for _, sign in peers}, {sign: process for process, sign in peers}
    while of:
        for sign in wait(list(of), HEARTBEAT_S):
            assert isinstance(sign, Connection)
            try:
                sign.recv()
                heard[sign] = time.monotonic()
            except (EOFError, OSError):
                del of[sign]
        now, before = time.monotonic(), last
        last = now
        if now - before > 2 * HEARTBEAT_S:  # this process was stopped, perhaps all were
            heard = dict.fromkeys(heard, now)
        for sign, process in list(of.items()):
            if now - heard[sign] > SILENT_S:
                failures.put((1, f"{process.name} sent no heartbeat for {SILENT_S:.0f} s, and was killed."))
                process.kill()
                del of[sign]


def _first_failure(
    failures: multiprocessing.SimpleQueue[Failure], processes: Sequence[BaseProcess]
) -> RlfactoryError | None:
    """Rank 0 sees a dead worker only as a lost connection; the queue has the error of the first that failed."""
    wait([process.sentinel for process in processes], EXIT_S)
    if not failures.empty():
        exit_code, text = failures.get()
        known = exit_code == UsageError.exit_code
        return UsageError(text) if known else TrainingError(f"A worker process failed:\n{text}")
    for process in processes:
        if process.exitcode:
            why = "It gave no reason."
            if process.exitcode == -signal.SIGKILL:
                why = "It was killed, perhaps because memory ran out: lower train.workers, or rollout.slots."
            return TrainingError(f"{process.name} ended with exit code {process.exitcode}. {why}")
    return None


def _worker(
    program: Program,
    rank: int,
    size: int,
    rendezvous: Path,
    heartbeats: Connection,
    failures: multiprocessing.SimpleQueue[Failure],
) -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C reaches the whole group; rank 0 decides for all
    _live_with_parent(heartbeats)
    try:
        workers = Workers(rank, size, rendezvous)
        program(workers)
        workers.close()
    except RunStopped:
        return
    except Exception as error:  # noqa: BLE001 - the boundary of the process: rank 0 gets every error
        known = isinstance(error, RlfactoryError) and error.exit_code == UsageError.exit_code
        text = str(error) if known else traceback.format_exc()
        failures.put((UsageError.exit_code if known else 1, text[-MAX_FAILURE:]))
        os._exit(1)


def _live_with_parent(heartbeats: Connection) -> None:
    """Send heartbeats, and end when the parent does."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        with contextlib.suppress(OSError):  # the parent is gone
            heartbeats.send(None)
            while not wait([parent.sentinel], HEARTBEAT_S):
                heartbeats.send(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
