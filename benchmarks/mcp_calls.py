"""What a call of an MCP tool costs through our manager, beside the bare client of the MCP SDK.

    python benchmarks/mcp_calls.py
    python benchmarks/mcp_calls.py --pythons .venv-mcp1/bin/python .venv-mcp2/bin/python    # one for each SDK release

The same stdio server answers at once, one call after the other, so that what is measured is the client. Each way has a
server process of its own; the ways take turns in short rounds, and the medians over the rounds are compared, as the
machine's speed changes with what else runs on it.

- ``bare`` is ``stdio_client`` with ``ClientSession.call_tool``;
- ``ours`` is ``DefaultToolManager`` on ``McpSource``: arguments validated, deadlines, limits, restarts;
- ``shared`` is the same with the server in the process that a group of processes shares.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from machine import describe, publish, sized

ROOT = Path(__file__).parent.parent
SERVER = [str(ROOT / "tests" / "support" / "mcp_server.py"), "--serial", "--tools", "echo"]
RESULTS = Path(__file__).parent / "results" / "mcp_calls.md"
CONCURRENCY = sized((1, 16, 64), (1, 4))
HEADER = """# Calls through stdio MCP, beside the bare client

`{command}`

{machine}. {rounds} rounds of {calls} calls to a server that answers at
once; medians of calls a second, and the median over the rounds of the ratio to the bare client in the same round.

| mcp | calls at once | bare | ours | ours / bare | shared host | shared / bare |
|---|---|---|---|---|---|---|"""

Call = Callable[[str], Awaitable[Any]]


async def bare(stack: AsyncExitStack) -> Call:
    from mcp import ClientSession, StdioServerParameters, stdio_client

    parameters = StdioServerParameters(command=sys.executable, args=SERVER)
    read, write = await stack.enter_async_context(stdio_client(parameters))
    session = await stack.enter_async_context(ClientSession(read, write))
    await session.initialize()
    await session.list_tools()
    return lambda text: session.call_tool("echo", {"text": text})


async def managed(stack: AsyncExitStack, group: str) -> Call:
    from rlfactory_mcp.source import McpSource

    from rlfactory_core.context import ToolContext
    from rlfactory_core.tools import DefaultToolManager
    from rlfactory_core.types import Sample, ToolCall

    source = McpSource({"mcpServers": {"it": {"command": sys.executable, "args": SERVER}}})
    stack.push_async_callback(source.close)
    manager = DefaultToolManager(await source.open((), group))
    context = ToolContext("t", Sample("s", "?"))

    async def call(text: str) -> None:
        arguments = {"text": text}
        (result,) = await manager.invoke([ToolCall("0", "echo", "", arguments)], context)
        assert result.content == text

    return call


async def rate(call: Call, calls: int, concurrency: int) -> float:
    """Calls a second, with so many under way at any time."""
    texts = iter([f"text number {number}" for number in range(calls)])

    async def work() -> None:
        for text in texts:
            await call(text)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(concurrency)))
    return calls / (time.perf_counter() - began)


async def measure(calls: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Concurrency -> way -> calls a second of each round."""
    async with AsyncExitStack() as stack:
        ways = {
            "bare": await bare(stack),
            "ours": await managed(stack, ""),
            "shared": await managed(stack, uuid.uuid4().hex),
        }
        rates: dict[str, dict[str, list[float]]] = {str(n): {name: [] for name in ways} for n in CONCURRENCY}
        for number in range(rounds + 1):
            for concurrency in CONCURRENCY:
                for name, call in ways.items():
                    found = await rate(call, calls, concurrency)
                    if number:  # the first round warms up
                        rates[str(concurrency)][name].append(found)
        return rates


def rows(python: str, calls: int, rounds: int) -> list[str]:
    command = [python, __file__, "--measure", "--calls", str(calls), "--rounds", str(rounds)]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    lines = []
    for concurrency, rates in answer["rates"].items():
        median = {name: statistics.median(found) for name, found in rates.items()}
        ratio = {
            name: statistics.median(a / b for a, b in zip(rates[name], rates["bare"], strict=True)) for name in rates
        }
        lines.append(
            f"| {answer['mcp']} | {concurrency} | {median['bare']:,.0f} | {median['ours']:,.0f} | {ratio['ours']:.2f} "
            f"| {median['shared']:,.0f} | {ratio['shared']:.2f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="+", default=[sys.executable], help="interpreters with releases of mcp")
    parser.add_argument("--calls", type=int, default=sized(640, 8))
    parser.add_argument("--rounds", type=int, default=sized(15, 1))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        rates = asyncio.run(measure(arguments.calls, arguments.rounds))
        print(json.dumps({"mcp": version("mcp"), "python": platform.python_version(), "rates": rates}))
        return
    header = HEADER.format(
        command="python benchmarks/mcp_calls.py" + " --pythons …" * (len(arguments.pythons) > 1),
        machine=describe(),
        rounds=arguments.rounds,
        calls=arguments.calls,
    )
    lines = [
        header,
        *(line for python in arguments.pythons for line in rows(python, arguments.calls, arguments.rounds)),
    ]
    publish(arguments.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
