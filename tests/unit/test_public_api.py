"""The public API is what ``docs/api.md`` and ``public_api.txt`` say; nothing of it changes by accident."""

from __future__ import annotations

import difflib
from importlib import import_module

import pytest
from public_api import SNAPSHOT, api_text, public_modules

CHANGED = """The public API is not the one in tests/unit/public_api.txt:

{diff}

Something new raises the minor number of hookspecs.API_VERSION (once a release). What goes or changes breaks plugins:
keep it beside the new one with a warning (rlfactory_core/deprecation.py), or it has to wait for the next major version.
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
