"""What commands write: no control sequence of a model, a tool or a server reaches the terminal, and no output fails.

A command goes on without output if nobody reads it any more (``| head``), or the disk is full: a training run must not
end because of a display. What a tool prints goes to the log.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click

from rlfactory_core.utils.display import CONTROLS, RUNNING_TOOL, printable

_log = logging.getLogger(__name__)

__all__ = ["echo", "echo_json"]


def echo(text: str = "", *, err: bool = False) -> None:
    """Write unstyled text and a line break. Of a text with styles (``click.style``), make the parts `printable`."""
    click.echo(printable(text), err=err)


def echo_json(record: object) -> None:
    """Write plain data on standard output."""
    text = json.dumps(record, indent=2, ensure_ascii=False)
    click.echo(CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


class _SafeStream:
    """A text stream that writes nowhere once it can no longer be written to.

    Args:
        display: the stream is for a command's display, so what tools print into it goes to the log.
    """

    def __init__(self, stream: TextIO, *, display: bool) -> None:
        self._stream, self._display = stream, display

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if self._display and (name := RUNNING_TOOL.get()):
            if text.strip():
                _log.warning("tool %s printed: %s", name, text.rstrip())
            return len(text)
        try:
            return self._stream.write(text)
        except OSError:
            self._lose()
            return len(text)

    def writelines(self, lines: Sequence[str]) -> None:
        self.write("".join(lines))

    def close(self) -> None:
        """Not by a tool, which may mean a stream of its own."""

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._lose()

    def _lose(self) -> None:
        """What is still in the buffer, and what processes write that inherited the stream, goes nowhere too."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def open_standard_streams() -> None:
    """Open those that the command was started without (``>&-``), so that no file gets their descriptors, to nowhere."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def log_handler() -> logging.Handler:
    """Writes log messages to standard error, as it is now."""
    handler = logging.StreamHandler()
    handler.setFormatter(_PrintableFormatter("%(name)s: %(message)s"))
    return handler


@contextmanager
def safe_output() -> Iterator[None]:
    """Within the context, standard output and standard error never fail, and log messages are printable."""
    before = sys.stdout, sys.stderr
    last_resort = logging.lastResort
    formatter = last_resort.formatter if last_resort else None
    for stream in before:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # for a terminal without UTF-8
    own = _SafeStream(before[0], display=True), _SafeStream(before[1], display=False)
    sys.stdout, sys.stderr = own
    if last_resort:
        last_resort.setFormatter(_PrintableFormatter())
    try:
        yield
    finally:
        for stream in own:
            stream.flush()
        sys.stdout, sys.stderr = before
        if last_resort:
            last_resort.setFormatter(formatter)
