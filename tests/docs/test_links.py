"""Links between documents, and from them to files, lead somewhere."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from documents import DOCUMENTS, ROOT

LINK = re.compile(r"\]\((?!https?:|mailto:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]*))?\)")
FENCE = re.compile(r"^(`{3,}).*?^\1`*\s*$", re.M | re.S)
CODE = re.compile(r"(`+)(?:(?!\1).)+\1", re.S)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    text = CODE.sub("``", FENCE.sub("", document.read_text(encoding="utf-8")))
    broken = [
        match[0] for match in LINK.finditer(text) if not leads_somewhere(document, match["path"], match["anchor"])
    ]
    assert not broken, f"{document.relative_to(ROOT)} links to nothing: {', '.join(broken)}"


def leads_somewhere(document: Path, path: str, anchor: str | None) -> bool:
    target = (document.parent / path).resolve() if path else document
    return target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))


@cache
def anchors(document: Path) -> frozenset[str]:
    """The anchors of a document's headings, as hosts of Markdown make them; a second one of a name gets a number."""
    seen: Counter[str] = Counter()
    found = set()
    for title in re.findall(r"^#{1,6} +(.+?)\s*$", FENCE.sub("", document.read_text(encoding="utf-8")), re.M):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(found)
