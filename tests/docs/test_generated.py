"""Documents that are written by a program are as it would write them now."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("program", ["layers", "config_keys", "metrics"])
def test_what_a_program_writes_is_up_to_date(program: str) -> None:
    path = ROOT / "docs" / "generate" / f"{program}.py"
    written = runpy.run_path(str(path))
    remedy = f"write it anew: python docs/generate/{program}.py"
    assert written["DOCUMENT"].read_text(encoding="utf-8") == written["document"](), remedy


def test_each_key_of_the_configuration_has_a_meaning() -> None:
    rows = (ROOT / "docs" / "config_keys.md").read_text(encoding="utf-8").splitlines()
    assert [row for row in rows if row.startswith("| `") and row.endswith("|  |")] == []
