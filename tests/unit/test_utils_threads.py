"""Threads that hang in a function do not hold up what has to go on, or to end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tool_calls import CONTEXT, echo, write

from rlfactory_core.tools import DefaultToolManager, tool
from rlfactory_core.types import FaultKind, ToolResult

LEAVES_A_THREAD = """
import threading, concurrent.futures, rlfactory_core
@rlfactory_core.tool
def leave(pool: bool) -> str:
    "Start a thread that never ends."
    never = threading.Event().wait
    if pool:
        concurrent.futures.ThreadPoolExecutor().submit(never)
    else:
        threading.Thread(target=never, daemon=False).start()
    return "left"
class Leaves(rlfactory_core.Task):
    tools = [leave]
    def samples(self, split):
        yield rlfactory_core.Sample("s", "?", "a")
@rlfactory_core.hookimpl
def rlfactory_tasks(register):
    register("leaves", Leaves)
"""


def test_calls_that_hang_in_to_thread_keep_neither_others_nor_the_event_loop() -> None:
    never = threading.Event()

    @tool(deadline_s=0.01)
    async def hangs() -> str:
        """Wait in a thread of the event loop's."""
        await asyncio.to_thread(never.wait)
        return "never"

    async def main() -> list[ToolResult]:
        manager = DefaultToolManager([hangs, echo])
        found = list(await manager.invoke([write("hangs", {})] * 40, CONTEXT))
        found += await manager.invoke([write("echo", {"text": 5})], CONTEXT)  # arguments that are checked in a thread
        await manager.close()
        return found

    *hung, checked = asyncio.run(main())
    assert {result.fault for result in hung} == {FaultKind.INFRA}
    assert "wrong arguments" in checked.content
    assert "too long" not in checked.content
    never.set()


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["true", "false"])
def test_a_command_ends_though_a_tool_left_a_thread(tmp_path: Path, pool: str) -> None:
    (tmp_path / "leaves.py").write_text(LEAVES_A_THREAD)
    script = "import rlfactory_core.cli.main as cli; cli.EXIT_S = 0.1; cli.main()"
    call = ["tools", "call", "leave", f"pool={pool}", "--plugin", str(tmp_path / "leaves.py")]
    command = [sys.executable, "-c", script, *call]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "left\n")
    assert "a thread that a tool has started does not end" in done.stderr
