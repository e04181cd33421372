"""A finished run, a browser that is logged in, and a cache that is thrown away."""

from __future__ import annotations

from pathlib import Path

import pytest
from reporting_examples import finished_run
from rlfactory_ui.access import Access
from rlfactory_ui.app import create_app
from run_fixtures import cache
from starlette.testclient import TestClient
from ui_pages import HOST

from rlfactory_core.reporting.folder import RunFolder

__all__ = ["browser", "cache", "folder"]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A finished run called ``first``."""
    folder = RunFolder(finished_run(tmp_path / "made").path.rename(tmp_path / "first"))
    (tmp_path / "made").rmdir()
    return folder


@pytest.fixture
def browser(folder: RunFolder) -> TestClient:
    access = Access(8000, frozenset({HOST}))
    browser = TestClient(create_app(folder.path.parent, access), f"http://{HOST}")
    browser.get(f"/login?token={access.link()}")
    return browser
