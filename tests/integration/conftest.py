"""Whole runs of the embedded engine, small enough for tests: a cache of their own and a tiny model made once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from run_fixtures import cache, cli, nothing_left, tiny_model
from runs import SEARCH_DATA, write_lines

__all__ = ["cache", "cli", "nothing_left", "search_files", "tiny_model"]


@dataclass(frozen=True)
class SearchFiles:
    """Questions and a corpus in Search-R1's formats."""

    data: Path
    corpus: Path


@pytest.fixture
def search_files(tmp_path: Path) -> SearchFiles:
    rows, documents = SEARCH_DATA
    return SearchFiles(write_lines(tmp_path / "train.jsonl", rows), write_lines(tmp_path / "docs.jsonl", documents))
