"""A cache for the tests of one session, apart from the user's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Indexes and warm-started models of these tests, in this process and those it starts.

    pytest's processes share it, so that each model is warm-started once. See `share_models`.
    """
    base = tmp_path_factory.getbasetemp()
    own = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    own.mkdir(exist_ok=True)
    share_models(own)
    before = os.environ.get("RLFACTORY_CACHE")
    os.environ["RLFACTORY_CACHE"] = str(own)
    yield own
    if before is None:
        del os.environ["RLFACTORY_CACHE"]
    else:
        os.environ["RLFACTORY_CACHE"] = before


def share_models(own: Path) -> None:
    """Use the models of the cache that ``RLFACTORY_TESTS_CACHE`` names, warm-started or de-quantised, in another cache.

    Nothing else of it is used, so that a second call of pytest finds no judge's replies.
    """
    if kept := os.environ.get("RLFACTORY_TESTS_CACHE"):
        for name in ("models", "gguf"):
            models = Path(kept, name)
            models.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another of pytest's processes was first
                (own / name).symlink_to(models)
