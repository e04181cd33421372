"""The files in ``examples/`` are those that the documents show, as they are at the end of the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import ROOT, blocks, changed

SHOWN = {"README.md": "examples", "docs/travel.md": "examples/travel"}


@pytest.mark.parametrize("document", SHOWN)
def test_the_document_shows_the_files_as_they_are(document: str) -> None:
    shown: dict[str, str] = {}
    for block in blocks(ROOT / document):
        kind, _, name = (part.strip() for part in block.mark.partition(":"))
        if kind in ("file", "change"):
            shown[name] = changed(shown[name], block.body) if kind == "change" else block.body
    files = {path.name: path.read_text("utf-8") for path in Path(ROOT / SHOWN[document]).iterdir() if path.is_file()}
    assert files
    assert {name: shown.get(name) for name in files} == files
