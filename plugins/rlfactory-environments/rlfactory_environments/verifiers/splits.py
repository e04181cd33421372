"""A split for evaluation, where an environment has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Each = TypeVar("Each")
_SHARE = 5  # at most one row in five is held out


def held_out_rows(rows: Sequence[Each], train: int, held_out: int) -> dict[str, list[Each]]:
    """The last rows for evaluation, and of the others those for training; no row is in both."""
    rows = rows[: train + held_out]
    count = min(held_out, len(rows) // _SHARE)
    at = len(rows) - count
    return {"train": list(rows[:at])[:train], "eval": list(rows[at:])}
