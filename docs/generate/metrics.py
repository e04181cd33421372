"""The table of metrics in docs/contracts/run-folder.md, made from `rlfactory_core.reporting.metric_table`.

``python docs/generate/metrics.py`` writes it; a test compares.
"""

from __future__ import annotations

import re
from pathlib import Path

from rlfactory_core.reporting.metric_table import METRICS

DOCUMENT = Path(__file__).parent.parent / "contracts" / "run-folder.md"
BLOCK = re.compile(r"(<!-- metrics -->\n).*?(<!-- /metrics -->)", re.DOTALL)
SCORES = (
    ("NAME`, `NAME/SLICE", "mean of a score, unweighted, overall and by slice; `score/NAME` if a metric has the name"),
    ("eval/…", "an evaluation between two steps"),
    ("…_s", "seconds, or a rate per second. Two equal runs differ only in these and in `machine/…`"),
)


def table() -> str:
    """The rows of the table, and those names that every run brings itself."""
    rows = [*((metric.name, metric.meaning) for metric in METRICS), *SCORES]
    return "\n".join(
        ["", "| name | meaning |", "|---|---|", *(f"| `{name}` | {meaning} |" for name, meaning in rows), "", ""]
    )


def document() -> str:
    """The page as it should be."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return BLOCK.sub(lambda match: f"{match[1]}{table()}{match[2]}", text)


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
