"""Servers of models that answer wrongly, late or not at all: a completion, or an error that names the server."""

from __future__ import annotations

import asyncio
import gzip
import json
import random

import pytest
from campaign_runs import trials
from faulty_openai import Act, Connection, completion, dripped, dropped, hung, refused, said, sent, serve_faults, torn

from rlfactory_core.clients import OpenAIClient
from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.protocols import Request, Sampled
from rlfactory_core.types import Message, SamplingParams

pytestmark = pytest.mark.slow
ASK = (Message("user", "Who?"),)
GOOD = completion("Him.")


def changed(**fields: object) -> Act:
    return sent(json.dumps({**GOOD, **fields}).encode())


def framed(data: bytes) -> Act:
    """Bytes as they are, instead of an HTTP response."""

    async def act(connection: Connection) -> None:
        connection.writer.write(data)
        await connection.writer.drain()
        connection.keep = False

    return act


def promised(length: int) -> Act:
    async def act(connection: Connection) -> None:
        await connection.send(200, json.dumps(GOOD).encode(), length=length)
        connection.keep = False

    return act


def call(arguments: object, name: object = "look") -> Act:
    calls = [{"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}]
    return changed(choices=[{"message": {"role": "assistant", "content": None, "tool_calls": calls}}])


ANSWERS: dict[str, Act] = {
    "nothing": sent(b""),
    "no JSON": sent(b"<html>busy</html>"),
    "half of it": sent(json.dumps(GOOD).encode()[:40]),
    "a list": sent(b"[]"),
    "a number": sent(b"7"),
    "null": sent(b"null"),
    "a text": sent(b'"x"'),
    "{}": sent(b"{}"),
    "deep": sent(b"[" * 100_000),
    "not UTF-8": sent(b'{"choices": "\xff"}'),
    "NaN": sent(b'{"choices": NaN}'),
    "10 MB": said("x" * 10_000_000),
    "no choices": changed(choices=[]),
    "null choices": changed(choices=None),
    "choices of text": changed(choices="abc"),
    "choice of null": changed(choices=[None]),
    "no message": changed(choices=[{}]),
    "null message": changed(choices=[{"message": None}]),
    "message of text": changed(choices=[{"message": "hello"}]),
    "content of numbers": changed(choices=[{"message": {"role": "assistant", "content": 7}}]),
    "content of parts": changed(
        choices=[{"message": {"role": "assistant", "content": [{"type": "text", "text": "x"}]}}]
    ),
    "odd role": changed(choices=[{"message": {"role": "wizard", "content": "x"}}]),
    "odd finish": said("x", finish="because"),
    "no usage": said("x", usage=False),
    "usage of text": changed(usage="many"),
    "usage below 0": changed(usage={"prompt_tokens": -1, "completion_tokens": -5}),
    "usage of null": changed(usage={"prompt_tokens": None}),
    "calls of text": said("x", tool_calls="call"),
    "calls of null": said("x", tool_calls=[None]),
    "call without function": said("x", tool_calls=[{"id": "1"}]),
    "arguments of no JSON": call("{oops"),
    "arguments of a list": call([1]),
    "arguments of a number": call(7),
    "arguments, deep": call("[" * 50_000),
    "name of null": call("{}", None),
    "name of a number": call("{}", 7),
    "surrogates": sent(json.dumps(completion("\ud800")).encode()),
    "a NUL": said("a\0b"),
    "an escape": said("\x1b[2J"),
    "error in 200": sent(b'{"error": {"message": "no"}}'),
    "error of text": sent(b'{"error": "no"}', 400),
    "301": sent(b"", 301, Location="http://127.0.0.1:9/"),
    "307 to itself": sent(b"", 307, Location="/v1/chat/completions"),
    "400": refused(400),
    "401": refused(401),
    "403": refused(403),
    "404": refused(404),
    "413": refused(413),
    "418": refused(418),
    "422": refused(422),
    "429": refused(429, Retry_After="0"),
    "429, odd": refused(429, Retry_After="soon"),
    "429, long": refused(429, Retry_After="1e9"),
    "500": refused(500),
    "502": sent(b"<html>", 502),
    "503": refused(503),
    "204": sent(b"", 204),
    "304": sent(b"", 304),
    "599": refused(599),
    "999": sent(b"{}", 999),
    "too short": promised(10),
    "too long": promised(10_000),
    "a reset": dropped(),
    "torn": torn("Him."),
    "hangs": hung(),
    "drips": dripped("Him.", 0.2),
    "no HTTP": framed(b"SSH-2.0-OpenSSH\r\n"),
    "no status": framed(b"HTTP/1.1\r\n\r\n"),
    "bad status": framed(b"HTTP/1.1 abc OK\r\n\r\n"),
    "bad chunk": framed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"),
    "two lengths": framed(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}"),
    "endless header": framed(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000),
    "gzip that is none": sent(b"xx", Content_Encoding="gzip"),
    "gzip": sent(gzip.compress(json.dumps(GOOD).encode()), Content_Encoding="gzip"),
}
LATE = {"hangs", "drips", "429, long", "endless header", "too long"}


async def ask(url: str, *, deadline_s: float) -> Sampled | str | None:
    client = OpenAIClient(url, "toy", retries=1, backoff_s=(0.001, 0.002), deadline_s=deadline_s)
    try:
        await client.open()
        return await client.answer(Request(ASK, [], SamplingParams(50)))
    except (BackendError, UsageError) as error:
        return str(error)
    finally:
        await client.close()


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_a_completion_or_an_error_with_the_servers_address(name: str) -> None:
    with serve_faults(then=ANSWERS[name]) as server:
        found = asyncio.run(ask(server.url, deadline_s=0.5 if name in LATE else 60.0))
        if isinstance(found, str):
            assert server.url.removesuffix("/v1") in found
            assert "Traceback" not in found
            assert len(found) < 2_000
        server.then = said("Him.")
        again = asyncio.run(ask(server.url, deadline_s=60.0))
    assert isinstance(again, Sampled)
    assert again.message.content == "Him."


@pytest.mark.parametrize("seed", trials(40))
def test_bytes_that_are_flipped_are_never_an_unknown_error(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(json.dumps(completion("Him.", tool_calls=[])).encode())
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    with serve_faults(then=sent(bytes(data))) as server:
        assert asyncio.run(ask(server.url, deadline_s=60.0)) is not None
