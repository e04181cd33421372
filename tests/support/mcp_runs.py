"""Runs with the server of colours: its ``mcp.json``, data about what it knows, and what it left."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import colour_server
import pytest
from colour_server import COLOURS
from runs import wait_for_no_process_of, write_lines


@dataclass(frozen=True)
class Servers:
    """An ``mcp.json`` with the server, and what that server left in its folder."""

    config: Path
    folder: Path

    @property
    def started(self) -> list[int]:
        """The processes that ever were."""
        return [int(path.name.removeprefix("started-")) for path in self.folder.glob("started-*")]

    @property
    def queries(self) -> list[str]:
        """What the server was asked, in the order of its answers."""
        calls = self.folder / "calls"
        lines = calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []
        return [json.loads(line)["params"]["arguments"]["query"] for line in lines]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """After the test none of the server's processes is left."""
    folder = tmp_path / "server"
    folder.mkdir()
    config = tmp_path / "mcp.json"
    entry = {"command": sys.executable, "args": [str(Path(colour_server.__file__)), str(folder)]}
    config.write_text(json.dumps({"mcpServers": {"colours": entry}}), encoding="utf-8")
    servers = Servers(config, folder)
    yield servers
    wait_for_no_process_of(servers.started)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A question about each thing."""
    rows = [{"prompt": f"What colour is {thing}?", "answer": colour} for thing, colour in COLOURS.items()]
    return write_lines(tmp_path / "data.jsonl", rows)


def trajectories(run: Path, name: str) -> list[dict[str, Any]]:
    """As they are saved."""
    lines = (run / "trajectories" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def results(trajectory: dict[str, Any]) -> list[dict[str, Any]]:
    """What tools answered, in order."""
    return [result for turn in trajectory["turns"] for result in turn["results"]]
