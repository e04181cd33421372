"""The modules, names and files that the documents mention exist; the changelog and the walk also have former ones."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest
from documents import DOCUMENTS, ROOT

DOTTED = re.compile(r"\brlfactory_(?:core|search|nl2sql|judge|interpreter|environments)(?:\.\w+)+")
FILE = re.compile(r"\brlfactory_core/[\w/]+(?:\.py)?")
OF_FORMER_COMMITS = ("CHANGELOG.md", "walk.md")
CURRENT = [path for path in DOCUMENTS if path.name not in OF_FORMER_COMMITS]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a page says which names are deprecated
@pytest.mark.parametrize("document", CURRENT, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_named_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    files = [name for name in set(FILE.findall(text)) if not (ROOT / name).exists()]
    assert [name for name in set(DOTTED.findall(text)) if not resolves(name)] + files == []


def resolves(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True
