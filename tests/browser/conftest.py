"""`rlfactory ui` as a process of its own, and Chromium before it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from caches import own_cache
from runs import wait_for_no_process_of

pytest.importorskip("rlfactory_ui", reason="needs rlfactory-core[ui]")
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")

WAIT_MS = 300_000
_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
_REBOUND = "--host-resolver-rules=MAP rebound.example 127.0.0.1"  # as the name server of a hostile site answers
_QUIET = ("--disable-background-networking", "--disable-component-update")
# A refusal has a status of 400 and more, of which the browser tells in its console; it is no mistake of the page.
_REFUSED = "Failed to load resource"


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_cache(tmp_path_factory) as cache:
        yield cache


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*_ARGUMENTS, *_QUIET, _REBOUND])
        yield browser
        browser.close()


@dataclass
class Ui:
    """A server, and the folder of its runs."""

    runs: Path
    link: str  # opens one browser

    @property
    def address(self) -> str:
        parts = urlsplit(self.link)
        return f"{parts.scheme}://{parts.netloc}"


@contextmanager
def serving(runs: Path) -> Iterator[Ui]:
    """Start the server; end it, and the runs that it has started."""
    command = [sys.executable, "-m", "rlfactory_core", "ui", str(runs), "--port", "0", "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield Ui(runs, server.stdout.readline().strip())
    finally:
        server.send_signal(signal.SIGINT)
        server.stdout.close()
        server.wait(600)
        started = [json.loads(path.read_text())["pid"] for path in runs.glob(".launches/*.json")]
        for pid in started:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        wait_for_no_process_of(started)


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[Ui]:
    with serving(tmp_path / "runs") as served:
        yield served


@dataclass
class Browser:
    """Opens pages of one server, and keeps what went wrong in them."""

    chromium: Any
    ui: Ui
    problems: list[str] = field(default_factory=list)
    contexts: list[Any] = field(default_factory=list)

    def __call__(self, **options: Any) -> Any:
        """A page of a new browser that has no cookie."""
        context = self.chromium.new_context(base_url=self.ui.address, **options)
        context.set_default_timeout(WAIT_MS)
        self.contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("console", lambda line: self._told(line.type, line.text))
        page.on("response", lambda answer: self._answered(answer.status, answer.url))
        return page

    def _answered(self, status: int, url: str) -> None:
        if status >= 500:
            self.problems.append(f"{status} {url}")

    def _told(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not text.startswith(_REFUSED):
            self.problems.append(text)


@pytest.fixture
def browser(chromium: Any, ui: Ui) -> Iterator[Browser]:
    """The test fails if a page has raised an error, opened a dialog or broken its own content policy."""
    opened = Browser(chromium, ui)
    yield opened
    for context in opened.contexts:
        context.close()
    assert opened.problems == []


@pytest.fixture
def page(browser: Browser, ui: Ui) -> Any:
    """A page of the browser that was let in."""
    opened = browser()
    opened.goto(ui.link)
    return opened


@pytest.fixture
def expect() -> Callable[..., Any]:
    """Waits until what is asserted of a page is so."""
    sync_api.expect.set_options(timeout=WAIT_MS)
    return sync_api.expect
