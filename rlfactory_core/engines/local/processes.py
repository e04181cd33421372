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
from queue import Empty, SimpleQueue

from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.errors import RlfactoryError, RunStopped, TrainingError, UsageError
from rlfactory_core.utils.interrupt import SIGNALS

Program = Callable[[Workers], None]
"""What the further processes run: it can be pickled."""

GRACE_S = 10  # how long a process may take to end by itself
EXIT_S = 2  # how long to wait for the exit of a failed process
START_S = 300.0  # for a process to begin, on a busy machine
HEARTBEAT_S, SILENT_S = 5.0, 45.0  # between a worker's heartbeats, and without one until it is killed


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
    failures: SimpleQueue[RlfactoryError] = SimpleQueue()
    peers: list[tuple[BaseProcess, Connection]] = []
    workers = None
    private = tempfile.TemporaryDirectory(prefix="rlf-workers-")
    rendezvous = Path(private.name, "rendezvous")
    try:
        for rank in range(1, size):
            here, there = context.Pipe(duplex=False)
            name = f"rlfactory-worker-{rank}"
            process: BaseProcess = context.Process(
                target=_worker, args=(program, rank, size, rendezvous, there), daemon=True, name=name
            )
            process.start()
            there.close()
            peers.append((process, here))
        for process, channel in peers:
            _wait_for_start(process, channel)
        threading.Thread(target=_watch, args=(peers, failures), daemon=True).start()
        workers = Workers(0, size, rendezvous)
        yield workers
        workers.close()
        for process, _ in peers:
            process.join(GRACE_S)
    except RlfactoryError:
        raise  # rank 0's own error; the workers have met the same one, or wait for rank 0
    except Exception as error:  # rank 0 sees a dead worker only as a lost connection
        with contextlib.suppress(Empty):
            raise failures.get(timeout=EXIT_S) from error
        raise
    finally:
        for process, _ in peers:
            process.kill()
            process.join()
        if workers is not None:
            workers.close()
        private.cleanup()


def _wait_for_start(process: BaseProcess, channel: Connection) -> None:
    """The collectives would wait forever for a process that has died, or was stopped, while it started."""
    if not channel.poll(START_S):
        raise TrainingError(f"{process.name} has not begun after {START_S:.0f} s.")
    try:
        channel.recv()
    except EOFError:
        process.join()
        raise TrainingError(
            f"{process.name} ended with exit code {process.exitcode} before it began; its output is above."
        ) from None


def _watch(peers: Sequence[tuple[BaseProcess, Connection]], failures: SimpleQueue[RlfactoryError]) -> None:
    """Collect the workers' failures until all have ended.

    A worker that sends no heartbeat, such as one that was stopped, is killed: rank 0 would wait for it for ever.
    """
    last = time.monotonic()
    heard, of = {channel: last for _, channel in peers}, {channel: process for process, channel in peers}
    while of:
        for channel in wait(list(of), HEARTBEAT_S):
            assert isinstance(channel, Connection)
            try:
                failure = channel.recv()
                heard[channel] = time.monotonic()
            except (EOFError, OSError):
                failure = _ended(of.pop(channel))
            if failure is not None:
                failures.put(failure)
        now, before = time.monotonic(), last
        last = now
        if now - before > 2 * HEARTBEAT_S:  # this process was stopped, perhaps all were
            heard = dict.fromkeys(heard, now)
        for channel, process in list(of.items()):
            if now - heard[channel] > SILENT_S:
                failures.put(TrainingError(f"{process.name} sent no heartbeat for {SILENT_S:.0f} s, and was killed."))
                process.kill()
                del of[channel]


def _ended(process: BaseProcess) -> RlfactoryError | None:
    process.join(EXIT_S)
    if not process.exitcode:
        return None
    why = "It gave no reason."
    if process.exitcode == -signal.SIGKILL:
        why = "It was killed, perhaps because memory ran out: lower train.workers, or rollout.slots."
    return TrainingError(f"{process.name} ended with exit code {process.exitcode}. {why}")


def _worker(program: Program, rank: int, size: int, rendezvous: Path, channel: Connection) -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C reaches the whole group; rank 0 decides for all
    sending = threading.Lock()
    _live_with_parent(channel, sending)
    try:
        workers = Workers(rank, size, rendezvous)
        program(workers)
        workers.close()
    except RunStopped:
        return
    except Exception as error:  # noqa: BLE001 - the boundary of the process: rank 0 gets every error
        known = isinstance(error, RlfactoryError) and error.exit_code == UsageError.exit_code
        failed = f"A worker process failed:\n{traceback.format_exc()}"
        with sending:
            channel.send(UsageError(str(error)) if known else TrainingError(failed))
        os._exit(1)


def _live_with_parent(channel: Connection, sending: threading.Lock) -> None:
    """Send heartbeats, and end when the parent does."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def beat() -> None:
        with sending:
            channel.send(None)

    def watch() -> None:
        with contextlib.suppress(OSError):  # the parent is gone
            beat()
            while not wait([parent.sentinel], HEARTBEAT_S):
                beat()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
