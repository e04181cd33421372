"""The repository's documents, and how their blocks are read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PATTERNS = ("*.md", "docs/**/*.md", "plugins/*/*.md", "benchmarks/results/*.md")
DOCUMENTS = [path for pattern in PATTERNS for path in sorted(ROOT.glob(pattern))]
MARK = r"(?:<!-- *(?P<mark>(?:(?!-->).)*?) *-->\s*\n)?"
BLOCK = re.compile(rf"{MARK}^```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^```", re.M | re.S)
SHELLS = ("bash", "sh", "console", "shell")


@dataclass(frozen=True)
class Block:
    """A fenced block and the comment before it."""

    mark: str
    language: str
    body: str

    @property
    def is_shell(self) -> bool:
        return self.language in SHELLS


def blocks(document: Path) -> Iterator[Block]:
    for found in BLOCK.finditer(document.read_text(encoding="utf-8")):
        yield Block(found["mark"] or "", found["language"], found["body"])


def commands(body: str) -> Iterator[list[str]]:
    """The lines that call rlfactory, as arguments; a line may go on after a backslash."""
    for line in re.sub(r"\\\n", " ", body).splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words and words[0] == "rlfactory":
            yield words[1 : words.index("|")] if "|" in words else words[1:]


def changed(text: str, diff: str) -> str:
    """A file's text with the lines of a diff that begin with - replaced by those that begin with +."""
    old, new = ("".join(f"{line[1:]}\n" for line in diff.splitlines() if line[:1] in (" ", sign)) for sign in "-+")
    assert text.count(old) == 1, f"it is not there once: {old}"
    return text.replace(old, new)
