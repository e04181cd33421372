"""The documents' examples, run: Python blocks whole, and the shell lines that cost nothing.

A block after ``<!-- not run -->`` is left out. A block after ``<!-- file: NAME -->`` is written to that file, for the
blocks below it in the same document.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [path for pattern in ("*.md", "docs/**/*.md", "plugins/*/*.md") for path in sorted(ROOT.glob(pattern))]
BLOCK = re.compile(r"(?:<!-- *(?P<mark>.*?) *-->\s*\n)?^```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^```", re.M | re.S)
CHEAP = re.compile(r"\$? *rlfactory +(plugins|doctor(?!.*--engine)|tools(?!.*--mcp)|--version|--help|\w+ +--help)\b")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_run(document: Path, tmp_path: Path) -> None:
    for block in BLOCK.finditer(document.read_text(encoding="utf-8")):
        mark, language, body = block["mark"] or "", block["language"], block["body"]
        if mark == "not run":
            continue
        if mark.startswith("file:"):
            (tmp_path / mark.removeprefix("file:").strip()).write_text(body, encoding="utf-8")
        if language == "python":
            run([sys.executable, "-c", body], tmp_path)
        elif language in ("bash", "sh", "console", "shell"):
            for line in body.splitlines():
                if CHEAP.match(line):
                    run([sys.executable, "-m", "rlfactory_core", *arguments(line)], tmp_path)


def arguments(line: str) -> list[str]:
    words = shlex.split(line.lstrip("$ "), comments=True)
    return words[1 : words.index("|")] if "|" in words else words[1:]


def run(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
