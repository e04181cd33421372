"""The guard process of a server: it ends the server and all its children when the owner ends, in whatever way.

It runs as a script with only the standard library, so that it starts in a few hundredths of a second:
``python guard.py GRACE_S OWNER FOLDER -- COMMAND…``. The end of its standard input, or of process OWNER, is the order
to stop the server: SIGTERM to the server's process group, and SIGKILL after GRACE_S seconds. The server's children get
the same time: one of them, Python's resource tracker, removes the shared memory of the others after they have ended.
FOLDER, unless empty, is removed where OWNER can no longer do it. The exit code is the server's, or 128 and the number
of the signal that ended it.
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
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.1  # between checks that the owner and the server live
_POLL_S = 0.02
SIGNALLED = 128


def main(arguments: list[str]) -> int:
    """Run the command until it ends or must be stopped."""
    split = arguments.index("--")
    grace_s, owner, folder = float(arguments[0]), int(arguments[1]), arguments[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the owner decides
    if sys.platform == "linux":  # the server's children become ours when it ends, so that we can wait for them
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        server = subprocess.Popen(  # noqa: S603
            arguments[split + 1 :],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_guard,  # noqa: PLW1509 - this process has one thread
        )
    except OSError as error:
        sys.stderr.write(f"{arguments[split + 1]}: {error.strerror}\n")
        return SIGNALLED - 1
    while server.poll() is None:
        # The owner's forks may keep our standard input open after it.
        if os.getppid() != owner or (select.select([sys.stdin], [], [], _LOOK_S)[0] and not sys.stdin.buffer.read(1)):
            break
    _end(server, grace_s)
    if folder and os.getppid() != owner:
        shutil.rmtree(folder, ignore_errors=True)
    return server.returncode if server.returncode >= 0 else SIGNALLED - server.returncode


def _end(server: subprocess.Popen[bytes], grace_s: float) -> None:
    """End the server, unless it has ended, and the children that outlive it."""
    _signal(server, signal.SIGTERM)
    ends = time.monotonic() + grace_s
    while _is_running(server) and time.monotonic() < ends:
        time.sleep(_POLL_S)
    _signal(server, signal.SIGKILL)
    server.wait()


def _is_running(server: subprocess.Popen[bytes]) -> bool:
    """Whether the server or, where the system gives us its children, one of them has not ended."""
    if server.poll() is None:
        return True
    with contextlib.suppress(ChildProcessError):  # there are no children any more
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _signal(server: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, number)


def _die_with_guard() -> None:
    """Ask the kernel to end the server if the guard is killed; only Linux supports it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # the server would inherit ignored signals
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
