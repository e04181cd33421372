"""`rlfactory ui` as a process: who it answers, and how it ends."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from reporting_examples import finished_run

pytestmark = pytest.mark.slow

WAIT_S = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """With one run, called ``first``; ended if the test has not."""
    finished_run(tmp_path / "made").path.rename(tmp_path / "first")
    command = [sys.executable, "-m", "rlfactory_core", "ui", str(tmp_path), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def link_of(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    return server.stdout.readline().strip()


def ask(link: str, path: str, **headers: str) -> http.client.HTTPResponse:
    address = urlsplit(link)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=WAIT_S)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def cookie_of(link: str) -> str:
    answer = ask(link, link.partition(urlsplit(link).netloc)[2])
    return (answer.getheader("set-cookie") or "").partition(";")[0]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1.evil.example:{port}", ""]
)
def test_a_request_for_another_host_is_refused(server: subprocess.Popen[str], host: str) -> None:
    link = link_of(server)
    cookie = cookie_of(link)
    assert ask(link, "/", cookie=cookie).status == 200
    answer = ask(link, "/", cookie=cookie, host=host.format(port=urlsplit(link).port))
    assert answer.status == 421
    assert b"first" not in answer.read()


def test_it_ends_in_silence_with_an_open_page(server: subprocess.Popen[str]) -> None:
    """What is being answered is cancelled, which is no error to show."""
    link = link_of(server)
    events = ask(link, "/runs/first/events", cookie=cookie_of(link))
    assert events.readline().startswith(b"event: change")
    server.send_signal(signal.SIGINT)
    _, told = server.communicate(timeout=WAIT_S)
    assert told.split() == ["stopped"]
