"""Fixtures of tests with whole runs: a cache of their own, the command line, and a tiny model that is made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from caches import own_cache
from runs import TINY_TASK, Cli


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_cache(tmp_path_factory) as cache:
        yield cache


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """The test leaves no process, no handle and no temporary file behind."""
    from real_servers import leaving_nothing

    with leaving_nothing():
        yield


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line in this process: faster than a process of its own, and the same code from ``main`` on."""
    pytest.importorskip("torch", reason="the embedded engine needs rlfactory-core[local]")
    return Cli(capsys)


@pytest.fixture(scope="session")
def tiny_model(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny task's warm-started model as a Hugging Face folder: a checkpoint after one step that changes nothing."""
    pytest.importorskip("torch", reason="the embedded engine needs rlfactory-core[local]")
    from rlfactory_core.cli.main import invoke

    out = tmp_path_factory.mktemp("warm") / "run"
    small = (
        "--steps",
        "1",
        "train.workers=1",
        "train.group_size=2",
        "train.lr=1e-12",
        "train.muon_lr=0",
        "eval.limit=2",
    )
    assert invoke(["run", "--plugin", TINY_TASK, "--out", str(out), *small]) == 0
    return out / "checkpoints" / "latest"
