"""The fork server: forks an interpreter for each trajectory, pauses it between calls, checks its limits and removes it.

An interpreter then costs a fork rather than a start of Python and its libraries. Nothing is left behind if the client
is killed: the kernel closes the client's connections, and the fork server ends the interpreters. If the fork server
is killed, the kernel kills the interpreters.

The fork server holds one connection per interpreter, the *lifeline*. The client writes ``r`` (run) on it, and closes it
to end the interpreter. An interpreter stops itself before the first call and after each. The kernel tells that to the
fork server, and the fork server tells the client. So no code can pretend that it has ended while it runs on. When the
interpreter and its directory are gone, the fork server sends one message that says how it ended, and closes the
lifeline.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from rlfactory_core.workers.guards import die_with_parent, enable, python_files

from . import cells, scratch, wire

_CHECK_S = 0.25
_CONTROL, _NO_INPUT, _OUTPUT = 3, 4, 5  # an interpreter's descriptors, beside the standard ones


@dataclass(slots=True)
class _Interpreter:
    """One interpreter."""

    pid: int
    folder: str
    lifeline: socket.socket
    running: bool = False
    exceeded: str = ""  # the limit for which the fork server killed it


def main() -> None:
    """Serve the client on the connection given as the first argument, until the client closes it."""
    connection, settings = socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the fork server outlives its client, to clean up
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS has another limit beside this one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for name in settings["preload"]:
        importlib.import_module(name)
    python_files(tuple(settings["packages"]))  # once, instead of in every process
    gc.freeze()  # untouched memory pages stay shared with the forks
    ForkServer(connection, settings).serve()


class ForkServer:
    """Serves one client.

    Args:
        settings: made by `rlfactory_interpreter.forkserver.settings`.
    """

    def __init__(self, connection: socket.socket, settings: dict[str, Any]) -> None:
        self._connection = connection
        self._settings = settings
        self._interpreters: dict[int, _Interpreter] = {}
        self._made = 0
        self._serving = True
        self._woken, self._waker = socket.socketpair()
        self._waker.settimeout(0.0)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only a signal with a handler wakes the selector
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection, selectors.EVENT_READ, self._on_request)
        self._selector.register(self._woken, selectors.EVENT_READ, self._reap)

    def serve(self) -> None:
        """Serve until the client closes the connection; then end all interpreters and remove all folders."""
        watch_at = 0.0
        while self._serving:
            running = [interpreter for interpreter in self._interpreters.values() if interpreter.running]
            for key, _ in self._selector.select(_CHECK_S if running else None):
                key.data()
            if time.monotonic() >= watch_at:
                for interpreter in self._interpreters.values():
                    if interpreter.running:
                        self._check_limits(interpreter)
                watch_at = time.monotonic() + _CHECK_S
        for interpreter in self._interpreters.values():
            os.kill(interpreter.pid, signal.SIGKILL)
        while self._interpreters:
            self._finish(*os.wait())
        scratch.remove(self._settings["folder"])

    def _on_request(self) -> None:
        """Fork the interpreter that the client requests, with the three connections that it sends."""
        data, descriptors, _, _ = socket.recv_fds(self._connection, 1, 3)
        if not data:
            self._serving = False
            return
        if len(descriptors) < 3:  # the limit of open files is reached; closing tells the client
            for descriptor in descriptors:
                os.close(descriptor)
            return
        control, output, lifeline = descriptors
        connection = socket.socket(fileno=lifeline)
        self._made += 1
        folder = os.path.join(self._settings["folder"], str(self._made))
        forkserver = os.getpid()
        try:
            os.mkdir(folder, 0o700)
            pid = os.fork()
        except OSError as error:
            _send_exit(connection, {"error": f"no process: {error.strerror}"})
        else:
            if pid == 0:
                _become_interpreter(self._settings, folder, control, output, forkserver)
            interpreter = self._interpreters[pid] = _Interpreter(pid, folder, connection)
            self._selector.register(connection, selectors.EVENT_READ, partial(self._on_order, interpreter))
        finally:
            os.close(control)
            os.close(output)

    def _on_order(self, interpreter: _Interpreter) -> None:
        if self._interpreters.get(interpreter.pid) is not interpreter:  # ended in the same round
            return
        orders = interpreter.lifeline.recv(64)
        if not orders:
            self._selector.unregister(interpreter.lifeline)
            self._end(interpreter, "")
        elif not interpreter.exceeded:
            interpreter.running = True
            os.kill(interpreter.pid, signal.SIGCONT)

    def _on_stop(self, interpreter: _Interpreter) -> None:
        interpreter.running = False
        self._check_limits(interpreter)
        if not interpreter.exceeded:
            _send(interpreter.lifeline, {"stopped": True})

    def _check_limits(self, interpreter: _Interpreter) -> None:
        settings = self._settings
        if scratch.exceeds(interpreter.folder, settings["scratch"], settings["entries"]):
            self._end(interpreter, "scratch")
        elif _threads(interpreter.pid) > settings["threads"]:
            self._end(interpreter, "threads")

    def _end(self, interpreter: _Interpreter, why: str) -> None:
        interpreter.running = False
        interpreter.exceeded = interpreter.exceeded or why
        os.kill(interpreter.pid, signal.SIGKILL)

    def _reap(self) -> None:
        self._woken.recv(4096)
        while self._interpreters:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self._on_stop(self._interpreters[pid])
            else:
                self._finish(pid, status)

    def _finish(self, pid: int, status: int) -> None:
        interpreter = self._interpreters.pop(pid)
        if interpreter.lifeline in self._selector.get_map():
            self._selector.unregister(interpreter.lifeline)
        try:
            scratch.remove(interpreter.folder)
        except OSError as error:
            sys.stderr.write(f"{interpreter.folder} cannot be removed: {error}\n")
        _send_exit(interpreter.lifeline, {"exit": os.waitstatus_to_exitcode(status), "ended_for": interpreter.exceeded})


def _send_exit(lifeline: socket.socket, message: dict[str, Any]) -> None:
    _send(lifeline, message)
    lifeline.close()


def _send(lifeline: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the client is gone
        lifeline.sendall(wire.pack(message))


def _threads(pid: int) -> int:
    """A process's number of threads; 0 if it is unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[17])
    except (OSError, ValueError, IndexError):
        return 0


def _become_interpreter(settings: dict[str, Any], folder: str, control: int, output: int, forkserver: int) -> NoReturn:
    try:
        os.setsid()
        die_with_parent()
        if os.getppid() != forkserver:  # the fork server has just ended
            os._exit(0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _keep_only(control, output)
        os.chdir(folder)
        os.environ.update(HOME=folder, TMPDIR=folder)
        sys.path.insert(0, "")  # the code can import modules that it writes
        sys.argv = [""]
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if the machine runs out of memory, this process is killed first
        missing = enable(settings["limits"], folder, settings["readable"], packages=settings["packages"])
        for name in [name for name in sys.modules if name.partition(".")[0] in (__package__, "rlfactory_core")]:
            del sys.modules[name]  # the model's code may use this name
        connection = socket.socket(fileno=_CONTROL)
        connection.sendall(wire.pack({"missing": missing}))
        cells.serve(connection, _NO_INPUT, _OUTPUT, settings["cpu_s"])
    except BaseException:  # noqa: BLE001 it must not continue as a second fork server
        os._exit(wire.BROKEN)
    os._exit(0)


def _keep_only(control: int, output: int) -> None:
    """Close all other descriptors, among them other interpreters' lifelines."""
    control, output = (fcntl.fcntl(item, fcntl.F_DUPFD, _OUTPUT + 1) for item in (control, output))
    os.dup2(control, _CONTROL)
    os.dup2(0, _NO_INPUT)
    os.dup2(output, _OUTPUT)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.closerange(_OUTPUT + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
