"""Who may use the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rlfactory_ui import pages
from rlfactory_ui.access import MAX_BODY, MAX_SESSIONS, MAX_TRIES, Access
from rlfactory_ui.app import create_app
from rlfactory_ui.routes import entry
from starlette.testclient import TestClient

HOST = "127.0.0.1:8000"


@pytest.fixture
def access() -> Access:
    return Access(8000, frozenset({HOST, "localhost:8000"}))


@pytest.fixture
def browser(access: Access, tmp_path: Path) -> TestClient:
    return TestClient(create_app(tmp_path, access), f"http://{HOST}", follow_redirects=False)


def test_a_link_opens_one_browser(access: Access, browser: TestClient) -> None:
    token = access.link()
    assert browser.get("/").status_code == 401
    entered = browser.get(f"/login?token={token}")
    assert entered.headers["location"] == "/"
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert browser.get("/").status_code == 200
    assert browser.get(f"/login?token={token}").status_code == 303  # it is in already
    browser.cookies.clear()
    assert browser.get(f"/login?token={token}").status_code == 401
    assert browser.get("/").status_code == 401


def test_a_browser_can_let_in_another(access: Access, browser: TestClient) -> None:
    browser.get(f"/login?token={access.link()}")
    page = browser.post("/link", headers={"origin": f"http://{HOST}"}).text
    link = page.split("<pre>")[1].split("</pre>")[0]
    browser.cookies.clear()
    assert browser.get(link).status_code == 303
    assert browser.get("/").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1:8001", ""])
def test_another_name_for_this_address_is_refused(access: Access, browser: TestClient, host: str) -> None:
    browser.get(f"/login?token={access.link()}")
    assert browser.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://127.0.0.1:8001"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_page_can_start_nothing(access: Access, browser: TestClient, headers: dict[str, str]) -> None:
    browser.get(f"/login?token={access.link()}")
    refused = browser.post("/new", headers=headers, data={"plugin": "search"})
    assert refused.status_code == 403


def test_a_large_body_is_refused(access: Access, browser: TestClient) -> None:
    browser.get(f"/login?token={access.link()}")
    origin = {"origin": f"http://{HOST}"}
    assert browser.post("/new/data", headers=origin, content=b"x" * (MAX_BODY + 1)).status_code == 413
    endless = (b"x" * 1000 for _ in range(2 * MAX_BODY // 1000))  # no length is told
    assert browser.post("/new/data", headers=origin, content=endless).status_code == 411


def test_a_length_of_many_digits_is_refused(access: Access, browser: TestClient) -> None:
    browser.get(f"/login?token={access.link()}")
    headers = {"origin": f"http://{HOST}", "content-length": "9" * 5000}
    assert browser.post("/new/data", headers=headers, content=b"").status_code == 413


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/runs/{'x' * 300}", 422),
        (f"/runs/{'x' * 5000}", 404),
        (f"/runs/one/trajectories/step-000001/{'9' * 5000}", 404),
        ("/plugins/a%00b", 404),
        ("/runs/a%00b", 404),
        ("/runs/..%2Fsecret", 404),
    ],
)
def test_an_address_that_no_page_can_have_is_refused(
    access: Access, browser: TestClient, path: str, status: int
) -> None:
    browser.get(f"/login?token={access.link()}")
    assert browser.get(path).status_code == status


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/new/tools", "/new/preview", "/new/options", "/new/prompt", "/new/memory"])
def test_a_form_without_fields_is_answered(access: Access, browser: TestClient, path: str) -> None:
    browser.get(f"/login?token={access.link()}")
    origin = {"origin": f"http://{HOST}"}
    for fields in ({}, {"plugin": "x" * 300}):
        assert browser.post(path, headers=origin, data=fields).status_code < 500


def test_no_page_may_run_or_load_what_is_not_ours(access: Access, browser: TestClient) -> None:
    browser.get(f"/login?token={access.link()}")
    for path in ("/", "/new", "/static/ui.js", "/nowhere"):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_a_password_lets_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "WRONG_S", 0.0)
    access = Access(8000, frozenset(), "correct horse")
    browser = TestClient(create_app(tmp_path, access), "http://lab:8000", follow_redirects=False)
    assert browser.get("/").headers["location"] == "/login"
    assert 'type="password"' in browser.get("/login").text
    wrong = browser.post("/login", data={"password": "correct hors"}, headers={"origin": "http://lab:8000"})
    assert wrong.status_code == 401
    assert "not the password" in wrong.text
    right = browser.post("/login", data={"password": "correct horse"}, headers={"origin": "http://lab:8000"})
    assert right.status_code == 303
    assert browser.get("/").status_code == 200


def test_passwords_are_tried_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "WRONG_S", 60.0)
    access = Access(8000, frozenset(), "correct horse")

    async def statuses() -> list[int]:
        app = create_app(tmp_path, access)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://lab:8000") as client:

            async def enter(password: str) -> int:
                return (await client.post("/login", data={"password": password})).status_code

            wrong = [asyncio.ensure_future(enter("wrong horse")) for _ in range(MAX_TRIES)]
            while not access.tries.locked():  # noqa: ASYNC110 - a semaphore tells nobody that it is
                await asyncio.sleep(0)
            answered = [await enter("correct horse")]
            for each in wrong:
                each.cancel()
            await asyncio.gather(*wrong, return_exceptions=True)
            return [*answered, await enter("correct horse")]

    assert asyncio.run(statuses()) == [429, 303]


def test_the_oldest_browser_is_forgotten_first(access: Access) -> None:
    sessions = [access.redeem(access.link()) for _ in range(MAX_SESSIONS + 1)]
    assert [access.knows(each) for each in (sessions[0], sessions[1], sessions[-1])] == [False, True, True]


def test_a_form_that_does_not_come_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FORM_S", 0.1)
    app = create_app(tmp_path, Access(8000, frozenset(), "correct horse"))

    async def status() -> int:
        async def endless() -> AsyncIterator[bytes]:
            yield b"password="
            await asyncio.Event().wait()

        chunks = endless()

        async def waits(scope: Any, _receive: Any, send: Any) -> None:
            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": await anext(chunks), "more_body": True}

            await app(scope, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(waits), base_url="http://lab:8000") as client:
            return (await client.post("/login", data={"password": "correct horse"})).status_code

    assert asyncio.run(status()) == 408
