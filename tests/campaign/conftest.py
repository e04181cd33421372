"""The campaign's own cache, its reference run, and how many trials there are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from caches import own_cache
from campaign_runs import Reference


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_cache(tmp_path_factory) as cache:
        yield cache


@pytest.fixture(scope="session")
def reference(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """A whole run that nothing interrupts."""
    pytest.importorskip("torch", reason="the embedded engine needs rlfactory-core[local]")
    return Reference.make(tmp_path_factory.mktemp("reference") / "run")
