"""The process between us and a server, which ends the server and all its children when we are gone, however we went.

It runs as a script, on the standard library alone, so that it starts in a few hundredths of a second:
``python guard.py GRACE_S OWNER FOLDER -- COMMAND…``. The end of its standard input, or of process OWNER, is the order
to stop the server: SIGTERM to the server's process group, and SIGKILL after GRACE_S seconds. FOLDER, unless empty, is
removed where OWNER can no longer do it. The exit code is the server's, or 128 and the number of the signal that ended
it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_LOOK_S = 1.0  # between looks at whether the owner lives, for its forks may keep our standard input open
_POLL_S = 0.02
_SIGNALLED = 128


def main(arguments: list[str]) -> int:
    """Run the command until it ends or has to."""
    split = arguments.index("--")
    grace_s, owner, folder = float(arguments[0]), int(arguments[1]), arguments[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the owner decides
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, or the wakeup below would not come
    signal.set_wakeup_fd(wake)
    try:
        server = subprocess.Popen(  # noqa: S603
            arguments[split + 1 :],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_end_with_guard,  # noqa: PLW1509 - this process has one thread
        )
    except OSError as error:
        sys.stderr.write(f"{arguments[split + 1]}: {error.strerror}\n")
        return _SIGNALLED - 1
    while server.poll() is None:
        if os.getppid() != owner or _hung_up(ended):
            _terminate(server, grace_s)
    _signal(server, signal.SIGKILL)  # children that outlived it
    if folder and os.getppid() != owner:
        shutil.rmtree(folder, ignore_errors=True)
    return server.returncode if server.returncode >= 0 else _SIGNALLED - server.returncode


def _hung_up(ended: int) -> bool:
    """Wait for news; True where the owner has closed our standard input."""
    readable = select.select([sys.stdin, ended], [], [], _LOOK_S)[0]
    if ended in readable:
        os.read(ended, 1)
    return sys.stdin in readable and not os.read(sys.stdin.fileno(), 1)


def _terminate(server: subprocess.Popen[bytes], grace_s: float) -> None:
    _signal(server, signal.SIGTERM)
    ends = time.monotonic() + grace_s
    while server.poll() is None and time.monotonic() < ends:
        time.sleep(_POLL_S)
    _signal(server, signal.SIGKILL)
    server.wait()


def _signal(server: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, number)


def _end_with_guard() -> None:
    """Even if the guard itself is killed; only Linux offers it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # what is ignored stays so in the server
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
