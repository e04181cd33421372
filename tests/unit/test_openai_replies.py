"""Replies of a server that are packed, broken, or longer than a client reads."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import replace

import pytest
from asked_client import client, talk
from fake_openai import Reply, said, scripted, serve

from rlfactory_core.errors import BackendError


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(200, b"not gzip", {"Content-Encoding": "gzip"}), "gave an answer that cannot be read"),
        (Reply(200, gzip.compress(bytes(20 << 20)), {"Content-Encoding": "gzip"}), "longer than 16,777,216 bytes"),
        (Reply(200, b" " * (17 << 20)), "longer than 16,777,216 bytes"),
        (Reply(200, gzip.compress(gzip.compress(b"{}")), {"Content-Encoding": "gzip, gzip"}), "expected gzip, deflate"),
        (Reply(200, gzip.compress(b"{}")[:-9], {"Content-Encoding": "gzip"}), "it breaks off"),
        (Reply(200, b'{"choices": [{"message": {}}], "usage": {"prompt_tokens": Infinity}}'), "did not answer with"),
        (Reply(200, b"[" * 100_000), "did not answer with a chat completion"),
        (Reply(200, b'{"choices": [{"message": {"role"'), "did not answer with a chat completion"),
    ],
)
def test_an_answer_that_is_none_is_a_backend_error(reply: Reply, message: str) -> None:
    with serve(scripted(reply)) as server, pytest.raises(BackendError, match=message):
        talk(client(server.url))


@pytest.mark.parametrize("raw", [False, True])
def test_a_packed_answer_without_counts_is_read_and_its_tokens_are_estimated(*, raw: bool) -> None:
    body = json.dumps(replace(said("x" * 400), headers={}).body | {"usage": None}).encode()
    packed = zlib.compress(body)[2:-4] if raw else zlib.compress(body)
    with serve(scripted(Reply(200, packed, {"Content-Encoding": "deflate"}))) as server:
        found = talk(client(server.url))
    assert found is not None
    assert 100 <= found.sampled_tokens < 150
    assert found.prompt_tokens > 0
