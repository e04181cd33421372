"""Starting runs and looking at what they leave: shared by the integration tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from process_tree import is_running

TINY_TASK = str(Path(__file__).with_name("tiny_task.py"))
_COLOURS = {"Bale": "red", "Doru": "blue", "Fimo": "green", "Gatu": "pink"}
SEARCH_DATA = (
    [
        {
            "data_source": "colours",
            "prompt": [{"role": "user", "content": f"What colour is {thing}?"}],
            "reward_model": {"style": "rule", "ground_truth": {"target": [colour]}},
            "extra_info": {"index": index},
        }
        for index, (thing, colour) in enumerate(_COLOURS.items())
    ],
    [{"id": thing, "contents": f'"{thing}"\n{colour}'} for thing, colour in _COLOURS.items()],
)
"""Rows in verl's columns and a corpus that answers them; the words are those of the tiny task."""


@dataclass(frozen=True)
class Outcome:
    """What a command line came to."""

    code: int
    out: str
    err: str


class Cli:
    """Calls the command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Outcome:
        from rlfactory_core.cli.main import invoke

        self._capsys.readouterr()
        code = invoke([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    def refusal(self, *arguments: object) -> str:
        """The message of a command that has to end with exit code 2 and without a traceback."""
        outcome = self(*arguments)
        assert outcome.code == 2, f"exit code {outcome.code}\n{outcome.out}\n{outcome.err}"
        assert "Traceback" not in outcome.out + outcome.err
        return outcome.err


def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """The command line in a process and process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "rlfactory_core", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    )


def finish(process: subprocess.Popen[str], seconds: float = 300) -> Outcome:
    """Wait for it; output and errors come together. If it does not end, its group is killed and the test fails."""
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
        pytest.fail(f"it did not end within {seconds} s:\n{out}")
    return Outcome(process.returncode, out, "")


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 300) -> None:
    """Poll a condition while the process lives; fails with its output where it ends before or takes too long."""
    import time

    ends = time.monotonic() + seconds
    while not happened():
        if process.poll() is not None:
            pytest.fail(f"ended with {process.returncode} before it should:\n{finish(process).out}")
        if time.monotonic() > ends:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"nothing within {seconds} s:\n{finish(process).out}")
        time.sleep(0.005)


def metrics(run: Path) -> list[dict[str, Any]]:
    """The whole lines of metrics.jsonl."""
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def repeatable(run: Path) -> list[dict[str, Any]]:
    """The metrics without wall-clock times and rates, and without the machine's."""

    def repeats(name: str) -> bool:
        return not name.endswith("_s") and not name.startswith("machine/")

    return [{name: value for name, value in row.items() if repeats(name)} for row in metrics(run)]


def summary(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return found


def checkpoints(run: Path) -> list[str]:
    """Everything in the checkpoint folder but the embedded engine's states, hidden names included."""
    return sorted(path.name for path in (run / "checkpoints").iterdir() if path.name != "resume")


def group_members(group: int) -> list[int]:
    """The processes of a process group that are still there and not zombies."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            members.append(int(stat.parent.name))
    return members


def wait_for_no_process(group: int, seconds: float = 60) -> None:
    """Fails where a process of the group outlives its leader for longer."""
    import time

    ends = time.monotonic() + seconds
    while members := group_members(group):
        if time.monotonic() > ends:
            os.killpg(group, 9)
            pytest.fail(f"still there: {members}")
        time.sleep(0.01)


def wait_for_no_process_of(pids: Iterable[int], seconds: float = 60) -> None:
    """Fails where one of them is still there, and no zombie, after a while."""
    import time

    ends = time.monotonic() + seconds
    while alive := [pid for pid in pids if is_running(pid)]:
        if time.monotonic() > ends:
            pytest.fail(f"still there: {alive}")
        time.sleep(0.01)


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """JSONL."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
