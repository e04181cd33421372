"""The warden: forks an interpreter per trajectory, stops it between calls, watches it, ends it, and cleans up after it.

A process of its own, so that an interpreter costs a fork rather than a start of Python and its libraries, and so that
everything is let go of also when the process that asked for it is killed: the kernel closes its connections, and that
is what the warden acts on. The interpreters in turn are killed by the kernel with the warden.

Per interpreter it holds a connection, its *lead*. On it the other side writes ``r`` (run) and ``p`` (pause), and hangs
up to have the interpreter ended; the warden writes one last message, how it ended, and hangs up once nothing is left.
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

from . import cells, guards, scratch, wire

_WATCH_S = 0.25
_CONTROL, _NOTHING, _OUTPUT = 3, 4, 5  # an interpreter's descriptors, beside the standard ones


@dataclass(slots=True)
class _Charge:
    """One interpreter."""

    pid: int
    folder: str
    lead: socket.socket
    running: bool = False
    ended_for: str = ""  # the limit for which the warden has ended it


def main() -> None:
    """Serve the process on the connection that is given as the first argument, until it hangs up."""
    connection, settings = socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it outlives its client, to clean up
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS has a limit beside this one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for name in settings["preload"]:
        importlib.import_module(name)
    gc.freeze()  # pages that stay untouched stay shared
    Warden(connection, settings).serve()


class Warden:
    """Args: settings: made by `rlfactory_core.tools.interpreter.warden.settings`."""

    def __init__(self, connection: socket.socket, settings: dict[str, Any]) -> None:
        self._connection = connection
        self._settings = settings
        self._charges: dict[int, _Charge] = {}
        self._made = 0
        self._serving = True
        self._woken, self._waker = socket.socketpair()
        self._waker.settimeout(0.0)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only a signal with a handler wakes
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection, selectors.EVENT_READ, self._admit)
        self._selector.register(self._woken, selectors.EVENT_READ, self._reap)

    def serve(self) -> None:
        """Until the client hangs up; then nothing is left of it."""
        watch_at = 0.0
        while self._serving:
            running = [charge for charge in self._charges.values() if charge.running]
            for key, _ in self._selector.select(_WATCH_S if running else None):
                key.data()
            if time.monotonic() >= watch_at:
                for charge in self._charges.values():
                    if charge.running:
                        self._watch(charge)
                watch_at = time.monotonic() + _WATCH_S
        for charge in self._charges.values():
            os.kill(charge.pid, signal.SIGKILL)
        while self._charges:
            self._bury(*os.wait())
        scratch.remove(self._settings["folder"])

    def _admit(self) -> None:
        """A new interpreter is asked for, with its three connections."""
        data, descriptors, _, _ = socket.recv_fds(self._connection, 1, 3)
        if not data:
            self._serving = False
            return
        if len(descriptors) < 3:  # no more may be open here; that they are closed says so
            for descriptor in descriptors:
                os.close(descriptor)
            return
        control, output, lead = descriptors
        connection = socket.socket(fileno=lead)
        self._made += 1
        folder = os.path.join(self._settings["folder"], str(self._made))
        warden = os.getpid()
        try:
            os.mkdir(folder, 0o700)
            pid = os.fork()
        except OSError as error:
            _say_last(connection, {"error": f"no process: {error.strerror}"})
        else:
            if pid == 0:
                _become_interpreter(self._settings, folder, control, output, warden)
            charge = self._charges[pid] = _Charge(pid, folder, connection)
            self._selector.register(connection, selectors.EVENT_READ, partial(self._obey, charge))
        finally:
            os.close(control)
            os.close(output)

    def _obey(self, charge: _Charge) -> None:
        if self._charges.get(charge.pid) is not charge:  # buried in the same round
            return
        orders = charge.lead.recv(64)
        if not orders:
            self._selector.unregister(charge.lead)
            self._end(charge, "")
        elif not charge.ended_for:
            charge.running = orders.endswith(b"r")
            os.kill(charge.pid, signal.SIGCONT if charge.running else signal.SIGSTOP)
            if not charge.running:
                self._watch(charge)

    def _watch(self, charge: _Charge) -> None:
        settings = self._settings
        if scratch.exceeds(charge.folder, settings["scratch"], settings["entries"]):
            self._end(charge, "scratch")
        elif _threads(charge.pid) > settings["threads"]:
            self._end(charge, "threads")

    def _end(self, charge: _Charge, why: str) -> None:
        charge.running = False
        charge.ended_for = charge.ended_for or why
        os.kill(charge.pid, signal.SIGKILL)

    def _reap(self) -> None:
        self._woken.recv(4096)
        while self._charges:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._bury(pid, status)

    def _bury(self, pid: int, status: int) -> None:
        charge = self._charges.pop(pid)
        if charge.lead in self._selector.get_map():
            self._selector.unregister(charge.lead)
        try:
            scratch.remove(charge.folder)
        except OSError as error:
            sys.stderr.write(f"{charge.folder} cannot be removed: {error}\n")
        _say_last(charge.lead, {"exit": os.waitstatus_to_exitcode(status), "ended_for": charge.ended_for})


def _say_last(lead: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # nobody wants to know
        lead.sendall(wire.pack(message))
    lead.close()


def _threads(pid: int) -> int:
    """How many threads a process has; 0 where there is no telling."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[17])
    except (OSError, ValueError, IndexError):
        return 0


def _become_interpreter(settings: dict[str, Any], folder: str, control: int, output: int, warden: int) -> NoReturn:
    try:
        os.setsid()
        guards.die_with_parent()
        if os.getppid() != warden:  # it has ended just now
            os._exit(0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _keep_only(control, output)
        os.chdir(folder)
        os.environ.update(HOME=folder, TMPDIR=folder)
        sys.path.insert(0, "")  # what the code writes it can import
        sys.argv = [""]
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # where the machine's memory runs out, it is the first to go
        missing = guards.put_up(settings["limits"], folder, settings["readable"])
        for name in [name for name in sys.modules if name.partition(".")[0] == __package__]:
            del sys.modules[name]  # the name is the model's
        connection = socket.socket(fileno=_CONTROL)
        connection.sendall(wire.pack({"missing": missing}))
        cells.serve(connection, _NOTHING, _OUTPUT, settings["cpu_s"])
    except BaseException:  # noqa: BLE001 it must not go on as a second warden
        os._exit(wire.BROKEN)
    os._exit(0)


def _keep_only(control: int, output: int) -> None:
    """Of all descriptors: among others are the leads of other interpreters."""
    control, output = (fcntl.fcntl(item, fcntl.F_DUPFD, _OUTPUT + 1) for item in (control, output))
    os.dup2(control, _CONTROL)
    os.dup2(0, _NOTHING)
    os.dup2(output, _OUTPUT)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.closerange(_OUTPUT + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
