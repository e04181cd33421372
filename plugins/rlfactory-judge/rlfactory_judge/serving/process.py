"""A server's process: it logs to a file, and ends together with all its children."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rlfactory_core.errors import BackendError
from rlfactory_judge.serving import guard

_TAIL_BYTES = 1 << 16
_MARGIN_S = 5.0  # for the guard, beyond the server's own grace
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Successful requests in the log, which would hide the last errors.
_ANSWERED = re.compile(r'"[A-Z]+ \S+ HTTP/[0-9.]+" 2[0-9][0-9]')
_SIGNALLED = 128


# Variables from launchers such as torchrun, which a server must not inherit.
_LAUNCHERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


class ServerProcess:
    """One server and its guard. Both end when this process ends.

    Args:
        log: the file to which the output is appended.
        grace_s: seconds between SIGTERM and SIGKILL.
        scratch: a folder that is removed if this process is killed; otherwise the caller removes it.

    Raises:
        BackendError: no process can be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        grace_s: float = 10.0,
        scratch: Path | None = None,
    ) -> None:
        self.log = log
        self._grace_s = grace_s
        told = (str(grace_s), str(os.getpid()), str(scratch or ""))
        watched = [sys.executable, "-I", guard.__file__, *told, "--", *command]
        try:
            with log.open("ab") as output:
                self._from = output.tell()
                self._guard = subprocess.Popen(  # noqa: S603
                    watched,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    cwd=log.parent,  # our own folder: `python -m` imports from the working directory
                    env={**_inherited(), **environment},
                    start_new_session=True,  # only we get a terminal's Ctrl-C, and then stop the server
                )
        except OSError as error:
            raise BackendError(f"The server cannot be started: {error}.") from error

    @property
    def pid(self) -> int:
        """The guard's process id. The guard lives exactly as long as the server."""
        return self._guard.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 plus the signal's number if a signal ended it."""
        return self._guard.poll()

    @property
    def ending(self) -> str:
        """A description of how it ended."""
        code = self.exit_code
        if code is None:
            return "it runs"
        if code < 0 or code > _SIGNALLED:
            return f"it was ended by signal {-code if code < 0 else code - _SIGNALLED}"
        return f"it ended with exit code {code}"

    def last_lines(self, count: int = 15) -> str:
        """The end of its output, without colours, empty lines and successful requests."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._from, size - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        lines = [line.rpartition("\r")[2].rstrip() for line in _COLOURS.sub("", text).split("\n")]
        return "\n".join([line for line in lines if line and not _ANSWERED.search(line)][-count:])

    def request_stop(self) -> None:
        """Ask the server to end, without waiting."""
        assert self._guard.stdin is not None
        with suppress(OSError):
            self._guard.stdin.close()

    def stop(self) -> None:
        """End the server and its children; returns when they have ended. May be called again."""
        self.request_stop()
        try:
            self._guard.wait(self._grace_s + _MARGIN_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()  # the server then ends by itself
            self._guard.wait()


def _inherited() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _LAUNCHERS}
