"""Addresses of servers: completed, and shown without their passwords."""

from __future__ import annotations

import pytest
from fake_openai import said, scripted, serve

from rlfactory_core.clients.openai import OpenAIClient
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
