"""Many trajectories at once whose code crashes, hangs, floods and is cancelled, in an order of chance."""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from rlfactory_interpreter import code_interpreter
from tests.support.interpreters import own_folder, run, trajectory
from tests.support.tool_calls import manage

from rlfactory_core import ToolContext
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.types import FaultKind, ToolResult

pytestmark = pytest.mark.slow

CODES = (
    "x = 1",
    "1 / 0",
    "print('a' * 1_000_000)",
    "while True: pass",
    "import time; time.sleep(0.05)",
    "import os; os._exit(1)",
    "import os; os.abort()",
    "import os; os.close(3)",
    "import os; os.mkdir('d'); os.chdir('d'); open('f', 'w').write('x' * 1_000_000)",
    "import threading; threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()",
)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from own_folder(tmp_path, monkeypatch)


def _open_descriptors() -> int:
    gc.collect()  # what earlier tests have dropped is closed now
    return len(os.listdir("/dev/fd"))


def test_every_trajectory_can_go_on_and_nothing_is_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlfactory_core.utils.aio.GRACE_S", 30.0)  # for a busy machine
    chance = random.Random(0)

    async def play(manager: DefaultToolManager, context: ToolContext) -> list[ToolResult]:
        results = []
        for _ in range(6):
            call = asyncio.ensure_future(run(manager, chance.choice(CODES), context))
            if chance.random() < 0.2:
                await asyncio.sleep(chance.random() * 0.1)
                call.cancel()
                await asyncio.wait((call,))
            else:
                results.append(await call)
        # A thread that an earlier call has left may use up the processor time of one more call.
        last = [(await run(manager, "'last'", context)).content for _ in range(2)]
        assert any(content.endswith("'last'\n") for content in last), last
        await context.end()
        return results

    async def work(manager: DefaultToolManager) -> list[ToolResult]:
        played = await asyncio.gather(*(play(manager, trajectory(str(n))) for n in range(60)))
        return [result for results in played for result in results]

    before = _open_descriptors()
    results = manage(work, code_interpreter(seconds=2, cpu_s=0.5), concurrency=60)
    assert {result.fault for result in results} == {None, FaultKind.TOOL}
    assert "ignores its cancellation" not in caplog.text
    assert _open_descriptors() == before
