"""The documents that stand elsewhere in the repository, as pages, and what links between documents mean."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent.parent
LINK = re.compile(r"\]\((?!https?:|mailto:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"^(`{3,}).*?^\1\s*$", re.M | re.S)


@cache
def pages() -> dict[str, str]:
    """Page of the site -> document in the repository, both as paths."""
    found = {
        "index.md": "README.md",
        "index_zh.md": "README_zh.md",
        "contributing.md": "CONTRIBUTING.md",
        "changelog.md": "CHANGELOG.md",
    }
    for path in sorted(ROOT.glob("plugins/*/README.md")):
        found[f"plugins/{path.parent.name.removeprefix('rlfactory-')}.md"] = path.relative_to(ROOT).as_posix()
    for path in sorted(ROOT.glob("benchmarks/results/*.md")):
        found[f"benchmarks/{path.name}"] = path.relative_to(ROOT).as_posix()
    for path in sorted((ROOT / "docs").rglob("*.md")):
        found[path.relative_to(ROOT / "docs").as_posix()] = path.relative_to(ROOT).as_posix()
    return found


def repository_pages() -> dict[str, str]:
    """The text of each page that stands outside docs/."""
    return {
        page: (ROOT / document).read_text(encoding="utf-8")
        for page, document in pages().items()
        if not document.startswith("docs/")
    }


def page_source(page: str) -> str | None:
    """The document that a page is made of; None: it is generated."""
    return pages().get(page)


def page_of(document: str) -> str | None:
    return {source: page for page, source in pages().items()}.get(document)


def target_of(document: str, link: str) -> str | None:
    """Where a link leads, from the repository's root; None: to nothing that exists."""
    target = os.path.normpath(PurePosixPath(document).parent / link)
    return target if (ROOT / target).exists() else None


def linked_files() -> list[str]:
    """Files that documents link to and that are no documents themselves."""
    documents = set(pages().values())
    found = set()
    for document in documents:
        text = FENCE.sub("", (ROOT / document).read_text(encoding="utf-8"))
        for match in LINK.finditer(text):
            target = target_of(document, match["path"])
            if target and target not in documents and (ROOT / target).is_file():
                found.add(target)
    return sorted(found)
