"""The files in ``examples/`` are those that the README shows."""

from __future__ import annotations

from documents import ROOT, blocks


def test_the_readme_shows_the_files_as_they_are() -> None:
    shown = {block.mark.removeprefix("file:").strip(): block.body for block in blocks(ROOT / "README.md")}
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")}
    assert files
    assert {name: shown.get(name) for name in files} == files
