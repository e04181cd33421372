"""A server as a process of ours, spoken to over its stdin and stdout.

The SDK's own ``stdio_client`` keeps its process to itself: a server that hangs could not be killed, nor could its
stderr be read, nor could calls go beside the session (`calls`). This one has the process in hand.

The process leads a process group of its own, and nothing of that group is left behind. It ends with us also when we are
killed, as its stdin ends then.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import math
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio

from rlfactory_core.tools.mcp import compat
from rlfactory_core.tools.mcp.calls import PipeCalls
from rlfactory_core.tools.mcp.link import LastWords, Link, LinkRequest

_log = logging.getLogger(__name__)

_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 28  # bytes; a server that writes no line break for longer than this is not speaking MCP
_MESSAGES = 64  # read ahead of the session, then the server has to wait
_LEAVE_S = 2.0  # for a server to end once its stdin has, as the protocol wants it
_TERMINATE_S = 1.0  # and then after SIGTERM
_REAP_S = 2.0  # and then after SIGKILL
_POLL_S = 0.01


@asynccontextmanager
async def open_stdio(request: LinkRequest) -> AsyncIterator[Link]:
    """Start the server; leaving the context ends it and everything that it started, within five seconds.

    Raises:
        OSError: the program cannot be started.
    """
    server = request.server
    with anyio.CancelScope(shield=True):  # one that is started is in our hands, and will be ended
        process = await asyncio.create_subprocess_exec(
            server.command,
            *server.args,
            env={**compat.default_environment(), **server.env},
            cwd=server.cwd,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
    deliver, read = anyio.create_memory_object_stream[Any](_MESSAGES)
    write, written = anyio.create_memory_object_stream[Any](math.inf)  # a frozen server must not stop who cancels
    assert process.stdin is not None
    calls = PipeCalls(process.stdin.write)
    tasks = [
        asyncio.ensure_future(_read_messages(process, deliver, calls, request)),
        asyncio.ensure_future(_write_messages(process, written)),
        asyncio.ensure_future(_read_stderr(process, request.last_words)),
    ]
    try:
        yield Link(read, write, lambda: _signal_group(process, signal.SIGKILL), calls)
    finally:
        try:
            with anyio.CancelScope(shield=True):
                await _stop(process)
                await asyncio.wait(tasks, timeout=_POLL_S)  # the rest of its stderr
        finally:
            _signal_group(process, signal.SIGKILL)
            for task in tasks:
                task.cancel()
            for stream in (deliver, read, write, written):
                stream.close()
            request.last_words.ending = _ending(process)


async def _read_messages(process: Process, deliver: Any, calls: PipeCalls, request: LinkRequest) -> None:
    assert process.stdout is not None
    parts: list[bytes] = []
    size = 0
    try:
        while chunk := await process.stdout.read(_CHUNK):
            head, *tail = chunk.split(b"\n")
            parts.append(head)
            size += len(head)
            if size > _LONGEST_LINE:
                _log.warning("MCP server %s writes no line breaks", request.server.name)
                break
            for line in tail:
                whole = b"".join(parts)
                if not calls.take(whole):
                    await _deliver_line(whole, deliver, request.server.name)
                parts, size = [line], len(line)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the session has ended first
    finally:
        request.over.set()
        deliver.close()


async def _deliver_line(line: bytes, deliver: Any, server: str) -> None:
    if not line.strip():
        return
    try:
        message = compat.parse_message(line)
    except ValueError:
        _log.debug("MCP server %s wrote a line to stdout that is no message (%d bytes)", server, len(line))
        return
    await deliver.send(message)


async def _write_messages(process: Process, written: Any) -> None:
    assert process.stdin is not None
    with suppress(OSError):  # the server is gone: its stdout ends too, and that is what counts
        async for message in written:
            process.stdin.write(compat.message_bytes(message))
            await process.stdin.drain()


async def _read_stderr(process: Process, last_words: LastWords) -> None:
    assert process.stderr is not None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while chunk := await process.stderr.read(_CHUNK):
        last_words.add(decoder.decode(chunk))


async def _stop(process: Process) -> None:
    """As the protocol wants it: its stdin ends, then it is asked to, then it is made to; and then its children are."""
    assert process.stdin is not None
    process.stdin.close()
    if not await _ended(process, _LEAVE_S):
        _signal_group(process, signal.SIGTERM)
        if not await _ended(process, _TERMINATE_S):
            _signal_group(process, signal.SIGKILL)
            await _ended(process, _REAP_S)
    _signal_group(process, signal.SIGKILL)
    with suppress(asyncio.TimeoutError):  # until its pipes are closed, which a child outside the group may keep open
        await asyncio.wait_for(process.wait(), _POLL_S)


async def _ended(process: Process, seconds: float) -> bool:
    """By looking: ``process.wait()`` also waits for everyone who inherited the pipes."""
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
