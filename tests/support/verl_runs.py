"""Whole runs of the verl engine on the CPU, and how to see that nothing of them is left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import Outcome, finish, start

VERL = ("--engine", "verl", "--device", "cpu")
LIMIT_S = 600.0  # a run takes one to three minutes on two idle cores
SHARED_MEMORY = Path("/dev/shm")
FAMILIES = ("raylet", "gcs_server", "ray::", "EngineCore", "engines.verl.janitor", "tools.mcp.host")


def rlfactory(*arguments: object) -> Outcome:
    """A whole command line in a process of its own; it has to succeed."""
    outcome = finish(start(*arguments), LIMIT_S)
    assert outcome.code == 0, outcome.out
    return outcome


def processes() -> set[int]:
    """Those of Ray and vLLM, and our own that outlive others: the janitor, and who keeps a group's MCP servers."""
    import psutil

    found = set()
    for process in psutil.process_iter(["pid", "cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if any(family in line for family in FAMILIES):
            found.add(process.info["pid"])
    return found


def temporary() -> set[str]:
    """Files in shared memory, and the run's own folders."""
    here = {str(path) for path in SHARED_MEMORY.iterdir()}
    return here | {str(path) for path in Path("/tmp").glob("rlf-*")}


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """After the test the machine is as it was before, at the latest after the janitor's work."""
    before = processes(), temporary()
    yield
    ends = time.monotonic() + 60
    while (left := (processes() - before[0], temporary() - before[1])) != (set(), set()):
        if time.monotonic() > ends:
            pytest.fail(f"left behind: processes {left[0]}, files {left[1]}")
        time.sleep(0.2)
