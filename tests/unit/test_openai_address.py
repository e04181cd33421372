"""Addresses of servers: completed, shown without their passwords, and the keys that are sent to them."""

from __future__ import annotations

import pytest
from fake_openai import said, scripted, serve

from rlfactory_core.clients import OpenAIClient
from rlfactory_core.errors import UsageError
from rlfactory_core.utils.display import without_credentials


@pytest.mark.parametrize("address", ["", "/v1", "/v1/", "/v1/chat/completions"])
def test_addresses_are_completed(address: str) -> None:
    with serve(scripted(said("Hi"))) as server:
        assert OpenAIClient(server.url.removesuffix("/v1") + address).base_url == server.url


@pytest.mark.parametrize(
    "address", ["ftp://bob:p4ss@h/v1", "bob:p4ss@h", "http://bob:p4ss@[::1/v1", "http://bob:x/p4ss@h:1"]
)
def test_what_is_no_address_keeps_its_password_to_itself(address: str) -> None:
    with pytest.raises(UsageError, match="is not an") as caught:
        OpenAIClient(address)
    assert "p4ss" not in str(caught.value)


def test_a_password_may_have_an_at_sign() -> None:
    assert without_credentials("no answer from http://bob:p4@ss@h/v1.") == "no answer from http://h/v1."


@pytest.mark.parametrize(
    ("address", "sent"),
    [
        ("https://api.openai.com/v1", "Bearer general"),
        ("https://api.openai.com.example.org/v1", ""),
        ("https://notopenai.com/v1", ""),
        ("http://me:p%40ss@localhost/v1", "Basic bWU6cEBzcw=="),
    ],
)
def test_whom_the_key_is_sent_to(address: str, sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "general")
    made = OpenAIClient(address, "a")
    assert made._authorization == sent
    assert "@" not in made.base_url
