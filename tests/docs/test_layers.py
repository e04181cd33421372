"""The drawing of the layers in CONTRIBUTING.md is that of the import contract."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_drawing_is_made_from_the_import_contract() -> None:
    layers = runpy.run_path(str(ROOT / "docs" / "generate" / "layers.py"))
    remedy = "write it anew: python docs/generate/layers.py"
    assert (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8") == layers["document"](), remedy
