"""The Chinese README shows the commands, code and figures of the English one."""

from __future__ import annotations

import re

from documents import ROOT, blocks

README, TRANSLATION = ROOT / "README.md", ROOT / "README_zh.md"
NUMBER = re.compile(r"\d+(?:\.\d+)*")


def test_the_translation_has_the_same_blocks() -> None:
    assert [block.body for block in blocks(TRANSLATION)] == [block.body for block in blocks(README)]


def test_the_translation_has_the_same_figures_in_its_tables() -> None:
    assert figures(TRANSLATION.read_text(encoding="utf-8")) == figures(README.read_text(encoding="utf-8"))


def figures(text: str) -> list[list[str]]:
    """The numbers of each row of each table."""
    return [sorted(NUMBER.findall(line)) for line in text.splitlines() if line.startswith("|")]
