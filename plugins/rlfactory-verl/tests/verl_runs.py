"""Whole runs of the verl engine on the CPU, and how to see that nothing of them is left behind.

Starting verl takes most of a test's time, so proofs share a start where they can:

| test | starts | what needs them |
|---|---|---|
| test_grpo | verl, twice | an agent and others' environments beside search; a resume after SIGKILL |
| test_eval | verl, once | `eval` |
| test_ppo | verl, once | a critic, adapters, turn rewards, outages; a pool's judge and its budget; MCP servers |
| test_images | verl, once | images of a prompt and of a tool; `separate_async` with a staleness; Ctrl-C |
| test_nodes | Ray, once | a cluster of two machines is checked; all of its tests share it |
| test_judge_serving | vLLM, once | a judge behind vLLM, which enforces forms |

The other files of verl's tests start nothing.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from runs import Outcome, finish, start

VERL = ("--engine", "verl", "--device", "cpu")
LIMIT_S = 900.0  # a run takes one to three minutes on two idle cores, and the tests start two at once
JANITOR_S = 60.0  # what the janitor may take
SHARED_MEMORY = Path("/dev/shm")


def rlfactory(*arguments: object) -> Outcome:
    """A whole command line in a process of its own; it has to succeed."""
    outcome = finish(start(*arguments), LIMIT_S)
    assert outcome.code == 0, outcome.out
    return outcome


def own_model(plugin: str, **task: Any) -> Path:
    """The folder of a task's own model, warm-started where it is not in the cache: for runs that have to name one."""
    from rlfactory_core.engines import prebuilt_model
    from rlfactory_core.reporting.folder import RunFolder
    from rlfactory_core.reporting.progress import Progress
    from rlfactory_core.runner import prepare

    ready = prepare(None, [{"plugin": plugin, "task": task}])
    unused = RunFolder(Path(tempfile.gettempdir()))
    return prebuilt_model(ready.at(unused, Progress()))


@pytest.fixture(scope="session")
def search_model(cache: Path) -> Path:
    """The search task's own model; made before the test, as Python's processes for it stay until this one ends."""
    return own_model("search")


@pytest.fixture
def nothing_of_verl_left(nothing_left: None) -> Iterator[None]:
    """Beyond `nothing_left`: Ray's agents, which hide whose they are, and shared memory, which outlives its makers.

    Another test's run may go on beside this one: what it shares is in use, or named on its janitor's command line.
    """
    import psutil
    from rlfactory_verl.cluster.processes import processes_of, shared_memory_of

    def shared() -> set[str]:
        return {path.name for path in SHARED_MEMORY.iterdir()}

    def others(name: str) -> bool:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if name in " ".join(process.cmdline()):
                    return True
        return False

    before = shared()
    yield
    folder = Path(tempfile.gettempdir())  # of this test alone
    ends = time.monotonic() + JANITOR_S
    while True:
        unused = shared() - before - shared_memory_of(psutil.process_iter())
        files = {name for name in unused if not others(name)}
        running = processes_of(folder)
        if not files and not running:
            return
        if time.monotonic() > ends:
            pytest.fail(f"left behind: processes {running}, shared memory {files}")
        time.sleep(0.2)
