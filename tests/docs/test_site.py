"""The built site, where there is one: ``nox -s docs`` says in RLFACTORY_SITE where. Its build finds broken links."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from documents import ROOT

REQUEST = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")
LOADED = re.compile(r"""(?:@import\s*|url\()\s*["']?((?:https?:)?//[^"')\s]+)""")
NEEDED = (
    "index.html",
    "tutorial.html",
    "plugins/search.html",
    "commands/run.html",
    "commands/nl2sql.html",
    "config_keys.html",
    "reference/rlfactory_core.html",
)


@pytest.fixture(scope="module")
def site() -> Path:
    if not (place := os.environ.get("RLFACTORY_SITE")):
        pytest.skip("no built site; nox -s docs builds one")
    return ROOT / place


def test_the_pages_that_are_made_are_there(site: Path) -> None:
    assert [name for name in NEEDED if not (site / name).exists()] == []


def test_no_page_makes_a_request_to_another_host(site: Path) -> None:
    made = {}
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = re.sub(r"<link rel=[\"']?canonical[^>]*>", "", path.read_text(encoding="utf-8"))
        found = LOADED.findall(text) if path.suffix == ".css" else REQUEST.findall(text)
        if found:
            made[str(path.relative_to(site))] = found
    assert made == {}


def test_every_hook_has_a_page(site: Path) -> None:
    from rlfactory_core.hookspecs import Hookspecs

    hooks = {name.removeprefix("rlfactory_") for name in vars(Hookspecs) if name.startswith("rlfactory_")}
    assert hooks - {path.stem for path in (site / "hooks").glob("*.html")} == set()
