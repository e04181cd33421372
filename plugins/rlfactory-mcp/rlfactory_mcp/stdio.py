"""Runs a server as a child process and talks to it over its stdin and stdout.

The SDK's own ``stdio_client`` does not give access to its process. Here the process can be killed when it hangs, its
stderr can be read, and calls can bypass the session (`calls`).

The process leads a process group of its own, all of which is ended with it. If our process is killed, the server ends
too, because its stdin ends.
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

from rlfactory_mcp import compat
from rlfactory_mcp.calls import PipeCalls
from rlfactory_mcp.link import LastWords, Link, LinkRequest

_log = logging.getLogger(__name__)

_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 28  # bytes; a server with longer lines does not speak MCP
_MESSAGES = 64  # that are read ahead of the session; then the server has to wait
_LEAVE_S = 2.0  # for a server to end after its stdin is closed, as the protocol asks
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
    with anyio.CancelScope(shield=True):  # a process that has been started must be known, so that it can be ended
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
    write, written = anyio.create_memory_object_stream[Any](math.inf)  # a frozen server must not block a cancellation
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
            process._transport.close()  # type: ignore[attr-defined] # its pipes, which a child may keep open
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
                    await _deliver_line(whole, deliver, request)
                parts, size = [line], len(line)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the session ended first
    finally:
        if parts and parts[-1].strip():
            request.last_words.add_printed(b"".join(parts))  # a line without an end
        request.over.set()
        deliver.close()


async def _deliver_line(line: bytes, deliver: Any, request: LinkRequest) -> None:
    if not line.strip():
        return
    try:
        message = compat.parse_message(line)
    except ValueError:
        _log.debug("MCP server %s wrote a line to stdout that is no message", request.server.name)
        request.last_words.add_printed(line)
        return
    await deliver.send(message)


async def _write_messages(process: Process, written: Any) -> None:
    assert process.stdin is not None
    with suppress(OSError):  # the server is gone, which the end of its stdout shows
        async for message in written:
            process.stdin.write(compat.message_bytes(message))
            await process.stdin.drain()


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
