"""A browser without scripts, for the pages of `rlfactory ui`."""

from __future__ import annotations

import html
import re

from starlette.testclient import TestClient

HOST = "127.0.0.1:8000"
OWN_PAGE = {"origin": f"http://{HOST}"}
PART = {**OWN_PAGE, "x-part": "1"}


def text_of(page: str) -> str:
    """What a reader sees, on one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def shown(browser: TestClient, path: str) -> str:
    answer = browser.get(path)
    assert answer.status_code == 200, answer.text
    return text_of(answer.text)


def refused(browser: TestClient, path: str, **fields: str) -> str:
    answer = browser.post(path, data=fields, headers=PART)
    assert answer.status_code == 422, answer.text
    return answer.text
