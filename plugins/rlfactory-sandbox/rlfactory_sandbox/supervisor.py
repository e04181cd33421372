"""The program of a fork server: it forks processes for its client, pauses and limits them, and removes what they leave.

A process then costs a fork rather than a start of Python and its libraries. If the client ends in any way, the fork
server ends the processes. If the fork server is killed, the kernel kills them. Only the fork server waits for their
ids, so no signal can reach a wrong process.

The fork server holds one connection per process, the *lifeline*. The client closes or shuts it to end the process. A
process that is to pause stops itself. The kernel tells that to the fork server, and the fork server tells the client,
which writes ``r`` (run) to let it go on. So no code can pretend that it has stopped or ended while it runs on. When the
process and its folder are gone, the fork server sends one message that says how it ended, and closes the lifeline.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from . import folders
from .guards import die_with_parent

__all__ = ["BROKEN", "Supervisor", "pack"]

BROKEN = 70  # exit status of a process whose work raised an exception
_CHECK_S = 0.25  # between checks of what runs
_LOOK_S = 1.0  # between checks that the client lives: its forks may keep the connection open


@dataclass(slots=True)
class _Process:
    """One forked process."""

    pid: int
    folder: str
    lifeline: socket.socket
    running: bool = False  # by the client's order
    exceeded: str = ""  # the limit for which the fork server killed it


class Supervisor:
    """Serves the client, whose connection is this process's standard input.

    Args:
        work: runs in each new process, which ends when it returns. Its current directory is its own folder, and the
            descriptors that the client gave are numbered from 3. It has no standard input and output.
        excess: the limit that a running process with this id and folder exceeds, if any. It is killed for that.
    """

    def __init__(self, work: Callable[[], None], excess: Callable[[int, str], str] = lambda *_: "") -> None:
        self._work, self._excess = work, excess
        self._client, self._folder = os.getppid(), os.getcwd()
        self._processes: dict[int, _Process] = {}
        self._made = 0
        self._serving = True
        self._connection = socket.socket(fileno=os.dup(0))
        with open(os.devnull, "r+b", buffering=0) as nothing:
            os.dup2(nothing.fileno(), 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)  # the fork server outlives its client, to clean up
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):  # macOS has a further limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def serve(self) -> None:
        """Serve until the client closes the connection or ends; then end all processes and remove all folders."""
        gc.freeze()  # untouched memory pages stay shared with the forks
        self._woken, self._waker = socket.socketpair()
        self._waker.settimeout(0.0)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only a signal with a handler wakes the selector
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._connection, selectors.EVENT_READ, self._on_request)
        self._selector.register(self._woken, selectors.EVENT_READ, self._reap)
        check_at = 0.0
        while self._serving and os.getppid() == self._client:
            running = any(process.running for process in self._processes.values())
            for key, _ in self._selector.select(_CHECK_S if running else _LOOK_S):
                key.data()
            if time.monotonic() >= check_at:
                for process in self._processes.values():
                    if process.running:
                        self._check(process)
                check_at = time.monotonic() + _CHECK_S
        for process in self._processes.values():
            os.kill(process.pid, signal.SIGKILL)
        while self._processes:
            self._finish(*os.wait())
        folders.remove(self._folder)

    def _on_request(self) -> None:
        """Fork the process that the client requests, with the connections that it sends; the lifeline is the last."""
        sent, descriptors, _, _ = socket.recv_fds(self._connection, 1, 255)
        if not sent:
            self._serving = False
            return
        if len(descriptors) == sent[0]:  # otherwise the limit of open files is reached; closing tells the client
            lifeline = socket.socket(fileno=descriptors.pop())
            self._fork(descriptors, lifeline)
        for descriptor in descriptors:
            os.close(descriptor)

    def _fork(self, given: list[int], lifeline: socket.socket) -> None:
        self._made += 1
        folder, forkserver = os.path.join(self._folder, str(self._made)), os.getpid()
        try:
            os.mkdir(folder, 0o700)
            pid = os.fork()
        except OSError as error:
            _send(lifeline, {"error": f"no process: {error.strerror}"})
            lifeline.close()
            return
        if pid == 0:
            self._become(folder, given, forkserver)
        process = self._processes[pid] = _Process(pid, folder, lifeline)
        self._selector.register(lifeline, selectors.EVENT_READ, partial(self._on_order, process))

    def _on_order(self, process: _Process) -> None:
        if self._processes.get(process.pid) is not process:  # ended in the same round
            return
        if not process.lifeline.recv(64):
            self._selector.unregister(process.lifeline)
            self._end(process, "")
        elif not process.exceeded:
            process.running = True
            os.kill(process.pid, signal.SIGCONT)

    def _check(self, process: _Process) -> None:
        if exceeded := self._excess(process.pid, process.folder):
            self._end(process, exceeded)

    def _end(self, process: _Process, why: str) -> None:
        process.running, process.exceeded = False, process.exceeded or why
        os.kill(process.pid, signal.SIGKILL)

    def _reap(self) -> None:
        self._woken.recv(4096)
        while self._processes:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return
            if not os.WIFSTOPPED(status):
                self._finish(pid, status)
                continue
            process = self._processes[pid]
            process.running = False
            self._check(process)
            if not process.exceeded:
                _send(process.lifeline, {"stopped": True})

    def _finish(self, pid: int, status: int) -> None:
        process = self._processes.pop(pid)
        if process.lifeline in self._selector.get_map():
            self._selector.unregister(process.lifeline)
        try:
            folders.remove(process.folder)
        except OSError as error:
            sys.stderr.write(f"{process.folder} cannot be removed: {error}\n")
        _send(process.lifeline, {"exit": os.waitstatus_to_exitcode(status), "ended_for": process.exceeded})
        process.lifeline.close()

    def _become(self, folder: str, given: list[int], forkserver: int) -> NoReturn:
        try:
            die_with_parent()
            if os.getppid() != forkserver:  # the fork server has just ended
                os._exit(0)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _keep_only(given)
            os.chdir(folder)
            os.environ.update(HOME=folder, TMPDIR=folder)
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")  # if the machine runs out of memory, this process is killed first
            self._work()
        except BaseException:  # noqa: BLE001 it must not continue as a second fork server
            os._exit(BROKEN)
        os._exit(0)


def pack(message: dict[str, Any]) -> bytes:
    """A message as the lifelines carry it: a line of JSON."""
    return json.dumps(message).encode() + b"\n"


def _send(lifeline: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the client is gone
        lifeline.sendall(pack(message))


def _keep_only(given: list[int]) -> None:
    """Number the given descriptors from 3, and close all others, among them other processes' lifelines."""
    wanted = [0, 0, *given]  # the first for standard output and error
    end = 1 + len(wanted)
    for number, kept in enumerate([fcntl.fcntl(each, fcntl.F_DUPFD, end) for each in wanted], 1):
        os.dup2(kept, number)
    os.closerange(end, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
