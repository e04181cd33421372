"""The recorded parser cases of other projects, where they stand beside the repository."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory_core.types import ToolSpec

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "cases" / "parsers"


@dataclass(frozen=True)
class Case:
    """One row; ``name`` is its file and line, counted from 0."""

    name: str
    family: str
    text: str
    tools: tuple[ToolSpec, ...]
    calls: list[dict[str, Any]]
    content: str | None  # None: not said
    contested: bool  # peers disagree
    asserted: bool


def read_cases() -> Iterator[Case]:
    """Nothing where the folder is absent."""
    for path in sorted(FOLDER.glob("*.jsonl")):
        for index, line in enumerate(path.open(encoding="utf-8")):
            row = json.loads(line)
            yield Case(
                f"{path.stem}-{index}",
                row["family"] if path.stem == "other" else path.stem,  # that file has several families
                row["text"],
                tuple(ToolSpec(tool["name"], "", tool.get("parameters") or {}) for tool in row["tools"] or ()),
                row["expected_calls"],
                row["expected_content"],
                bool(row.get("contested")),
                row.get("strength") == "asserted",
            )
