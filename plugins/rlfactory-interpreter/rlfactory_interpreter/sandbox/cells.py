"""The interpreter: runs pieces of code (cells) in one namespace, as a notebook does."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import math
import os
import resource
import signal
import socket
import sys
import traceback
import types
from functools import partial
from typing import Any, cast

from rlfactory_sandbox.supervisor import pack

_OUTER_FRAMES, _INNER_FRAMES = 3, 7  # shown of a long traceback
_CHAIN = 3  # shown of a chain of exceptions


def serve(control: socket.socket, no_input: int, output: int, cpu_s: float) -> None:
    """Run the cells that arrive, until the other side closes the connection.

    Args:
        no_input: an empty file, which becomes the code's standard input.
        output: receives everything that the model will see.
        cpu_s: seconds of processor time for one cell, over all its threads.
    """
    notebook = Notebook(no_input, output)
    stop = partial(os.kill, os.getpid(), signal.SIGSTOP)  # which tells the fork server that nothing runs now
    stop()
    for request in control.makefile("rb"):
        message = json.loads(request)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(_cpu_used() + cpu_s), hard))
        failed = not notebook.run(message["code"])
        control.sendall(reply(message["call"], failed=failed))
        stop()


def reply(call: int, *, failed: bool) -> bytes:
    """What an interpreter sends before it stops itself at the end of a call."""
    return pack({"call": call, "failed": failed})


def _cpu_used() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Notebook:
    """A namespace and the cells that ran in it."""

    def __init__(self, no_input: int, output: int) -> None:
        self._no_input, self._output = no_input, output
        self._cells = 0
        self._home = os.getcwd() + os.sep
        self._main = types.ModuleType("__main__")
        sys.modules["__main__"] = self._main  # pickle and dataclasses look there

    def run(self, code: str) -> bool:
        """Run a cell and show the value of its last expression. Returns False if the code raised."""
        self._cells += 1
        name = f"<cell {self._cells}>"
        linecache.cache[name] = (len(code), None, (code + "\n").splitlines(keepends=True), name)
        self._reset_streams()
        try:
            self._execute(code, name)
            failure = ""
        except SystemExit as exit_:
            failure = "" if exit_.code in (None, 0) else self._traceback(exit_)
        except BaseException as error:  # noqa: BLE001 the boundary to the model's code
            failure = self._traceback(error)
        self._flush()
        self._write(failure)
        return not failure

    def _execute(self, code: str, name: str) -> None:
        tree = ast.parse(code, name)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        names: dict[str, Any] = self._main.__dict__
        exec(compile(tree, name, "exec"), names)  # noqa: S102 running code is this process's purpose
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), names)  # noqa: S307
            if value is not None:
                names["_"] = value
                shown = repr(value)
                self._flush()
                self._write(shown + "\n")

    def _reset_streams(self) -> None:
        """Open the standard streams again: earlier code may have closed or replaced them."""
        os.dup2(self._no_input, 0)
        for standard in (1, 2):
            os.dup2(self._output, standard)
        sys.stdin = sys.__stdin__ = _stream(0, "r")  # type: ignore[misc]
        sys.stdout = sys.__stdout__ = _stream(1, "w")  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = _stream(2, "w")  # type: ignore[misc]

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.__stdout__, sys.stderr, sys.__stderr__):
            with contextlib.suppress(BaseException):  # the code may have put any object there
                stream.flush()  # type: ignore[union-attr]

    def _write(self, text: str) -> None:
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        while data:
            data = data[os.write(self._output, data) :]

    def _traceback(self, error: BaseException) -> str:
        """The traceback, reduced to frames of the model's own code."""
        try:
            report = traceback.TracebackException(type(error), error, error.__traceback__, compact=True)
            self._shorten(report)
            return "".join(report.format()).replace(self._home, "")
        except BaseException:  # noqa: BLE001 the exception's methods are the model's code too
            return f"{type(error).__name__} (it cannot be shown)\n"

    def _shorten(self, report: traceback.TracebackException) -> None:
        """Remove frames of other code, and the first exceptions of a long chain."""
        link, links = report, 1
        while True:
            link.stack = _Stack(item for item in link.stack if item.filename.startswith(("<cell ", self._home)))
            earlier = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
            if earlier is None:
                return
            if links == _CHAIN:
                link.__cause__ = link.__context__ = None
                return
            link, links = earlier, links + 1


def _stream(descriptor: int, mode: str) -> io.TextIOWrapper:
    """A line-buffered stream, so that printed lines survive if the process is killed."""
    opened = open(descriptor, mode, buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    return cast(io.TextIOWrapper, opened)


class _Stack(traceback.StackSummary):
    """Omits the middle of a long traceback."""

    def format(self, **options: Any) -> list[str]:
        shown = super().format(**options)
        if len(shown) <= _OUTER_FRAMES + _INNER_FRAMES:
            return shown
        return [*shown[:_OUTER_FRAMES], "  [...]\n", *shown[-_INNER_FRAMES:]]
