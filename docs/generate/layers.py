"""The drawing of the core's layers in CONTRIBUTING.md, made from the import contract in pyproject.toml.

``python docs/generate/layers.py`` writes it; a test compares.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = ROOT / "CONTRIBUTING.md"
BLOCK = re.compile(r"(<!-- layers -->\n).*?(<!-- /layers -->)", re.DOTALL)
WIDTH = 100


def drawing() -> str:
    """The layers from top to bottom, each with the first sentence of its docstring."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(item["layers"] for item in contracts if item.get("containers") == ["rlfactory_core"])
    names = [name.strip() for layer in layers for name in layer.split("|")]
    column = max(map(len, names)) + 2
    rows = []
    for layer in layers:
        for number, name in enumerate(layer.split("|")):
            mark = "↓ " if number == 0 else "| "
            lines = textwrap.wrap(_meaning(name.strip()), WIDTH - column)
            rows.append(f"{mark}{name.strip():<{column}}{lines[0]}")
            rows += [f"{'':<{column + 2}}{line}" for line in lines[1:]]
    return "\n".join(["```text", *rows, "```", ""])


def _meaning(name: str) -> str:
    """The first sentence of a room's or module's docstring."""
    place = ROOT / "rlfactory_core" / name
    file = place / "__init__.py"
    if not file.exists():
        file = place.with_suffix(".py")
    doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(doc.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def document() -> str:
    """CONTRIBUTING.md as it should be."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return BLOCK.sub(lambda match: f"{match[1]}{drawing()}{match[2]}", text)


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
