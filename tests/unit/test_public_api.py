"""The public API is what ``docs/api.md`` and ``public_api.txt`` say; nothing of it changes by accident."""

from __future__ import annotations

import difflib
import re
from importlib import import_module

import pytest
from public_api import ROOT, SNAPSHOT, api_text, public_modules, public_names

CHANGED = """The public API is not the one in tests/unit/public_api.txt:

{diff}

Something new raises the minor number of hookspecs.API_VERSION (once a release). What goes or changes breaks plugins:
after the first release, keep it beside the new one with a DeprecationWarning, or wait for the next major version.
Then write the new state with `python tests/support/public_api.py`, and tell of it in CHANGELOG.md."""


def test_names_and_signatures_are_those_of_the_snapshot() -> None:
    before, now = SNAPSHOT.read_text(encoding="utf-8"), api_text()
    diff = "\n".join(difflib.unified_diff(before.splitlines(), now.splitlines(), "pinned", "now", lineterm="", n=1))
    assert before == now, CHANGED.format(diff=diff)


@pytest.mark.parametrize("name", public_modules())
def test_a_public_module_lists_its_names_once_and_has_each(name: str) -> None:
    module = import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    assert [item for item in module.__all__ if not hasattr(module, item)] == []
    assert [item for item in module.__all__ if item.startswith("_") and item != "__version__"] == []


DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("plugins/*/README.md")]
TEMPLATES = [*(ROOT / "plugins" / "rlfactory-devkit" / "rlfactory_devkit" / "scaffold" / "templates").rglob("*.jinja")]
_PACKAGES = r"rlfactory_(?:core|devkit|mcp|sandbox|vision)"
IMPORT = re.compile(rf"^\s*from ({_PACKAGES}[\w.]*) import (?:\(([^)]*)\)|([^#\n]*))", re.MULTILINE)


def test_what_examples_and_templates_import_is_public() -> None:
    public = public_names()
    files = [*DOCUMENTS, *TEMPLATES]
    assert len(DOCUMENTS) > 10
    assert len(TEMPLATES) > 5
    private = [
        f"{path.relative_to(ROOT)}: {module}.{name}"
        for path in files
        for module, several, one in IMPORT.findall(path.read_text(encoding="utf-8"))
        for name in re.findall(r"\w+", several or one)
        if (module, name) not in public
    ]
    assert private == []
