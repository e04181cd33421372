"""Runs a server as a child process and talks to it over its stdin and stdout.

The process leads a process group of its own, all of which is ended with it. If our process is killed, the server ends
too, because its stdin ends.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from rlfactory_mcp.config import ServerConfig
from rlfactory_mcp.reasons import LastWords
from rlfactory_mcp.rpc import LONGEST_LINE, Peer, read_lines, to_line

_PASSED_ON = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")  # no secrets
_CHUNK = 1 << 16
_LEAVE_S = 2.0  # for a server to end after its stdin is closed, as the protocol asks
_TERMINATE_S = 1.0  # and then after SIGTERM
_REAP_S = 2.0  # and then after SIGKILL
_POLL_S = 0.01


@asynccontextmanager
async def open_stdio(server: ServerConfig, last_words: LastWords) -> AsyncIterator[Peer]:
    """Start the server; leaving the context ends it and everything that it started, within five seconds.

    Raises:
        OSError: the program cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        server.command,
        *server.args,
        env={**{name: os.environ[name] for name in _PASSED_ON if name in os.environ}, **server.env},
        cwd=server.cwd,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=LONGEST_LINE,
        start_new_session=True,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    peer = Peer(lambda message: stdin.write(to_line(message)), lambda: _signal_group(process, signal.SIGKILL))
    tasks = [
        asyncio.ensure_future(read_lines(stdout, peer, last_words.add_printed)),
        asyncio.ensure_future(_read_stderr(process, last_words)),
    ]
    try:
        yield peer
    finally:
        try:
            await _stop(process)
            await asyncio.wait(tasks, timeout=_POLL_S)  # the rest of its stderr
        finally:
            _signal_group(process, signal.SIGKILL)
            for task in tasks:
                task.cancel()
            process._transport.close()  # type: ignore[attr-defined] # its pipes, which a child may keep open
            last_words.ending = _ending(process)


async def _read_stderr(process: Process, last_words: LastWords) -> None:
    assert process.stderr is not None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while chunk := await process.stderr.read(_CHUNK):
        last_words.add(decoder.decode(chunk))


async def _stop(process: Process) -> None:
    """End the process as the protocol asks: close its stdin, then SIGTERM, then SIGKILL, then kill its children."""
    assert process.stdin is not None
    process.stdin.close()
    if not await _ended(process, _LEAVE_S):
        _signal_group(process, signal.SIGTERM)
        if not await _ended(process, _TERMINATE_S):
            _signal_group(process, signal.SIGKILL)
            await _ended(process, _REAP_S)
    _signal_group(process, signal.SIGKILL)
    with suppress(TimeoutError):  # a child outside the group may keep the pipes open
        await asyncio.wait_for(process.wait(), _POLL_S)


async def _ended(process: Process, seconds: float) -> bool:
    """Whether the process ends in time. Polls, because ``process.wait()`` also waits for heirs of the pipes."""
    ends = asyncio.get_running_loop().time() + seconds
    while process.returncode is None:
        if asyncio.get_running_loop().time() >= ends:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def _signal_group(process: Process, number: signal.Signals) -> None:
    """The group lives on when its leader is gone; that number is not given out anew as long as it does."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _ending(process: Process) -> str:
    code = process.returncode
    if code is None:
        return "it does not end"
    if code >= 0:
        return f"it ended with exit code {code}"
    with suppress(ValueError):
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it was ended by signal {-code}"
