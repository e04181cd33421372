"""What mkdocs calls as it builds: pages made from elsewhere are added, links to files become links to pages.

A document is written to be read in the repository too, so its links are those of the repository. Those that lead to
another document become links to that document's page; other files are copied into the site.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from commands import command_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from reference import reference_pages
from repository import LINK, ROOT, linked_files, page_of, page_source, repository_pages, target_of

ROW = re.compile(r"^\|.*\|$", re.M)
CODE = re.compile(r"`[^`]+`")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """A folder in the navigation stands for its pages."""
    written = [path.relative_to(config.docs_dir).as_posix() for path in sorted(Path(config.docs_dir).rglob("*.md"))]
    config.nav = list(_expanded(config.nav or [], [*written, *_generated()]))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, content in _generated().items():
        files.append(File.generated(config, name, content=content))
    for path in linked_files():
        files.append(File.generated(config, f"source/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    source = page_source(page.file.src_uri)
    if source is None:
        return markdown

    def to_page(match: re.Match[str]) -> str:
        target = target_of(source, match["path"])
        place = page_of(target) if target else None
        if place is None and target and files.get_file_from_path(f"source/{target}"):
            place = f"source/{target}"
        if place is None:
            return match[0]
        up = "../" * page.file.src_uri.count("/")
        return f"]({up}{place}{match['anchor'] or ''})"

    return ROW.sub(_plain_bars, LINK.sub(to_page, markdown))


def _plain_bars(row: re.Match[str]) -> str:
    """In a table's code other hosts of Markdown want ``\\|``, which the site would show as it stands."""
    return CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])


@cache
def _generated() -> dict[str, str]:
    """Each page that is not in docs/, by its path there."""
    return {**repository_pages(), **command_pages(), **reference_pages()}


def _expanded(nav: list[Any], names: list[str]) -> Iterator[Any]:
    for item in nav:
        if not isinstance(item, dict):
            yield item
            continue
        ((title, value),) = item.items()
        if isinstance(value, list):
            yield {title: list(_expanded(value, names))}
        elif value.endswith("/"):
            below = sorted(
                (name for name in names if name.startswith(value)),
                key=lambda name: (not name.endswith("/index.md"), name),
            )
            yield {title: below}
        else:
            yield item
