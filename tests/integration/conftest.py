"""Whole runs of the embedded engine, small enough for tests: a cache of their own and a tiny model made once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from runs import SEARCH_DATA, Cli, write_lines

pytest.importorskip("torch", reason="the embedded engine needs rlfactory-core[local]")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Indexes and warm-started models of these tests, in this process and those it starts."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("RLFACTORY_CACHE")
    os.environ["RLFACTORY_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["RLFACTORY_CACHE"]
    else:
        os.environ["RLFACTORY_CACHE"] = before


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line in this process: faster than a process of its own, and the same code from ``main`` on."""
    return Cli(capsys)


@pytest.fixture(scope="session")
def tiny_model(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny task's warm-started model as a Hugging Face folder; for one process it stays in the cache, too."""
    from runs import TINY_TASK

    from rlfactory_core.cli.main import invoke

    out = tmp_path_factory.mktemp("warm") / "run"
    arguments = ["run", "--plugin", TINY_TASK, "--steps", "0", "--out", str(out), "train.workers=1", "eval.limit=2"]
    assert invoke(arguments) == 0
    (folder,) = (cache / "models").glob("[0-9a-f]*")
    return folder


@dataclass(frozen=True)
class SearchFiles:
    """Questions and a corpus in Search-R1's formats."""

    data: Path
    corpus: Path


@pytest.fixture
def search_files(tmp_path: Path) -> SearchFiles:
    rows, documents = SEARCH_DATA
    return SearchFiles(write_lines(tmp_path / "train.jsonl", rows), write_lines(tmp_path / "docs.jsonl", documents))
