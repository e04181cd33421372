"""The documents' examples, run: Python blocks whole, and the shell lines that cost nothing.

A comment before a block says what else becomes of it, for the blocks below it in the same document:

- ``<!-- not run -->`` leaves it out;
- ``<!-- file: NAME -->`` also writes it to that file;
- ``<!-- run -->`` runs every line that calls rlfactory, whatever it costs; ``<!-- fails -->`` too, and it has to fail;
- ``<!-- slow -->`` the same, out of the fast lane;
- ``<!-- output -->`` compares it with what the last block printed: each of its lines stands there, … for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents import DOCUMENTS, ROOT, Block, blocks, commands

CHEAP = re.compile(
    r"(plugins +(list|info|doctor)|doctor(?!.*--engine)|tools(?!.*--mcp)|--version|--help|\w+ +--help)\b"
)


def slowly(document: Path) -> bool:
    return any(block.mark == "slow" for block in blocks(document))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_run(document: Path, tmp_path: Path) -> None:
    play(document, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("document", [*filter(slowly, DOCUMENTS)], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_costly_examples_run(document: Path, tmp_path: Path) -> None:
    play(document, tmp_path, slow=True)


def play(document: Path, place: Path, *, slow: bool) -> None:
    printed = ""
    for block in blocks(document):
        if block.mark == "not run":
            continue
        file = written(block, place)
        if block.mark == "output":
            if printed:
                shows(printed, block.body)
        elif block.language == "python" and not slow:
            printed = run([sys.executable, *(file or ("-c", block.body))], place)
        elif block.is_shell:
            printed = ""
            for arguments in chosen(block, slow=slow):
                command = [sys.executable, "-m", "rlfactory_core", *arguments]
                printed += run(command, place, succeeds=block.mark != "fails")


def written(block: Block, place: Path) -> list[str]:
    """The file that a block is, where it is one."""
    if not block.mark.startswith("file:"):
        return []
    file = place / block.mark.removeprefix("file:").strip()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block.body, encoding="utf-8")
    return [str(file)]


def chosen(block: Block, *, slow: bool) -> list[list[str]]:
    """The commands of a block that this lane runs; the slow one runs the cheap ones again, for what they leave."""
    if block.mark in ("run", "fails") or (block.mark == "slow" and slow):
        return list(commands(block.body))
    return [] if slow else [command for command in commands(block.body) if CHEAP.match(" ".join(command))]


def run(command: list[str], cwd: Path, *, succeeds: bool = True) -> str:
    own = {"RLFACTORY_CACHE": str(cwd / ".cache"), "PYTHONPATH": str(cwd), "COLUMNS": "120"}
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **own}
    )
    assert (done.returncode == 0) is succeeds, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def shows(printed: str, expected: str) -> None:
    """Each line of a document's output stands in what was printed; spaces do not count."""
    squeezed = " ".join(printed.split())
    for line in expected.splitlines():
        pattern = ".*".join(re.escape(" ".join(part.split())) for part in line.split("…"))
        assert re.search(pattern, squeezed), f"not printed: {line}\n{printed}"
