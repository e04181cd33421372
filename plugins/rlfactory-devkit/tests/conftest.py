"""The command line, and a cache that is thrown away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from caches import own_cache
from command_fixtures import install, rlfactory
from runs import Cli

__all__ = ["cache", "cli", "install", "rlfactory"]


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_cache(tmp_path_factory) as cache:
        yield cache


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line in this process."""
    return Cli(capsys)
