"""docs/config_keys.md: all configuration keys, read from the sections themselves, the core's and those of the plugins.

``python docs/generate/config_keys.py`` writes it; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from html import escape
from pathlib import Path

from pydantic import BaseModel

from rlfactory_core.config import RunConfig
from rlfactory_core.plugins.description import Part, describe
from rlfactory_core.plugins.loading import words
from rlfactory_core.plugins.options import Option, section_options
from rlfactory_core.plugins.registry import Registry

CONFIGURED = ("task", "reward_scorer", "verifier", "config_section")
DOCUMENT = Path(__file__).parent.parent / "config_keys.md"
HEAD = """# Configuration keys

Look up here each key, its type, default and meaning.

A key can be set in a file (`--config FILE.yaml`) or on the command line (`train.lr=3e-4`).
[Configuration](contracts/config.md) explains which value wins and what is refused.
"""


def document() -> str:
    """The page as it should be."""
    return "\n".join([HEAD, *_sections(), *_plugins()])


def _sections() -> Iterator[str]:
    """The keys of a run itself, then a table a section."""
    options = section_options(RunConfig)
    sections = [name for name, field in RunConfig.model_fields.items() if isinstance(field.default, BaseModel)]
    yield from ("## The run", "", *_table(option for option in options if _section(option) not in sections))
    for name in sections:
        doc = " ".join((type(RunConfig.model_fields[name].default).__doc__ or "").split())
        yield from (f"## {name}", "", doc, "", *_table(option for option in options if _section(option) == name))


def _section(option: Option) -> str:
    return option.key.partition(".")[0]


def _plugins() -> Iterator[str]:
    """The options of what each plugin gives."""
    registry = Registry()
    for plugin in registry.load_all():
        # To describe an engine would be to import it, torch and all; it takes no options of its own.
        asked = tuple(item for item in plugin.registrations if item.kind in CONFIGURED)
        parts = [part for part in describe(replace(plugin, registrations=asked)).parts if part.options]
        if parts:
            yield from (f"## Plugin {plugin.entry.name}", "")
        for part in parts:
            yield from _part(part)


def _part(part: Part) -> Iterator[str]:
    yield from (f"### {words(part.kind)} {part.name}", "", part.doc, "")
    yield from (f"Given as `{part.given_as}`.", "", *_table(part.options))


def _table(options: Iterable[Option]) -> Iterator[str]:
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    for option in options:
        default = "has to be given" if option.default is None else _code(option.default)
        yield f"| `{option.key}` | {_code(option.type)} | {default} | {_cell(escape(option.doc, quote=False))} |"
    yield ""


def _code(text: str) -> str:
    return _cell(f"`{text}`") if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
