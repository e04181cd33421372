"""The client against a server on the loopback that does what real ones do, and what broken ones do."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from asked_client import ASK, LOOK, PARAMS, ask, client, talk
from fake_openai import Reply, error, said, scripted, serve

from rlfactory_core.clients import OpenAIClient
from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.protocols import Request, Sampled
from rlfactory_core.types import Message, ToolCall


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RLFACTORY_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_a_question_as_it_is_sent_and_its_answer() -> None:
    with serve(scripted(said("Him.", reasoning_content=" I think. "))) as server:
        openai = client(server.url)
        found = talk(openai)
    assert found == Sampled(Message("assistant", "Him.", reasoning="I think."), "stop", 100, 10)
    assert openai.model == "toy"
    (body,) = server.chats
    assert body == {
        "model": "toy",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}],
        "temperature": 0.7,
        "max_tokens": 50,
        "top_p": 0.9,
        "seed": 5,
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "description": "Look.", "parameters": dict(LOOK.parameters)},
            }
        ],
    }


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"where": "left"}', {"where": "left"}),
        ({"where": "left"}, {"where": "left"}),
        ('"{\\"where\\": \\"left\\"}"', {"where": "left"}),
        ("", {}),
        (None, {}),
        ('{"where": "le', None),
        ("[1]", None),
        ('{"where": NaN}', None),
        ('{"where": 1e999}', None),
    ],
)
def test_arguments_are_read_tolerantly(written: Any, arguments: Mapping[str, Any] | None) -> None:
    with serve(scripted(said(None, ("look", written)))) as server:
        found = talk(client(server.url))
    assert found is not None
    (call,) = found.message.tool_calls
    assert (call.id, call.name, call.arguments) == ("id0", "look", arguments)
    assert (call.error is None) == (arguments is not None)


def test_parallel_calls_get_ids_of_their_own() -> None:
    calls: list[Any] = [{"function": {"name": "look", "arguments": "{}"}} for _ in range(2)]
    with serve(scripted(said("", tool_calls=[*calls, {"id": "x"}, "oops"]))) as server:
        found = talk(client(server.url))
    assert found is not None
    assert [call.id for call in found.message.tool_calls] == ["call_0", "call_1", "call_2", "call_3"]
    assert [bool(call.error) for call in found.message.tool_calls] == [False, False, True, True]


def test_a_conversation_goes_back_in_a_form_that_servers_can_read() -> None:
    broken = ToolCall("c1", "look", '{"where"', error="bad")
    history = (
        *ASK,
        Message("assistant", "", reasoning="Hm.", tool_calls=(ToolCall("c0", "look", "{}", {"where": "left"}), broken)),
        Message("tool", "nothing", tool_call_id="c0", name="look"),
    )

    async def run(openai: OpenAIClient) -> None:
        await openai.open()
        await ask(openai)
        await ask(openai, *history)
        await openai.close()

    with serve(scripted(said("a", reasoning="So."), said("b"))) as server:
        asyncio.run(run(client(server.url)))
    _, _, assistant, tool = server.chats[1]["messages"]
    assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == [
        '{"where": "left"}',
        '{"invalid": "{\\"where\\""}',
    ]
    assert assistant["reasoning"] == "Hm."  # under the name that this server uses
    assert tool == {"role": "tool", "content": "nothing", "tool_call_id": "c0"}


def test_thinking_that_a_server_leaves_in_the_content_is_taken_out() -> None:
    with serve(scripted(said("<think>Hm.</think>\n\nHim.", finish="length"))) as server:
        found = talk(client(server.url))
    assert found is not None
    assert (found.message.reasoning, found.message.content, found.finish) == ("Hm.", "Him.", "length")


def test_half_a_character_breaks_nothing() -> None:
    with serve(scripted(said("\ud83d", ("look", '{"where": "\ud83d"}')))) as server:
        found = talk(client(server.url))
    assert found is not None
    assert found.message.content == "?"
    found.message.tool_calls[0].arguments_text.encode()


def test_passing_troubles_are_tried_again() -> None:
    troubles = error(429, "slow down", Retry_After="0"), error(503, "loading"), Reply(0), said("At last.")
    with serve(scripted(*troubles)) as server:
        found = talk(client(server.url))
    assert found is not None
    assert found.message.content == "At last."
    assert len(server.chats) == 4


@pytest.mark.parametrize(
    ("reply", "times", "message"),
    [
        (error(500, "out of memory"), 3, "HTTP status 500: out of memory"),
        (error(400, "bad schema"), 1, "HTTP status 400: bad schema"),
        (Reply(200, b"<html>"), 1, "did not answer with a chat completion"),
        (Reply(200, {"choices": []}), 1, "did not answer with a chat completion"),
        (Reply(200, {"choices": [{"message": "hi"}], "usage": []}), 1, "did not answer with a chat completion"),
        (Reply(0), 3, "cannot be reached"),
    ],
)
def test_lasting_troubles_are_a_backend_error(reply: Reply, times: int, message: str) -> None:
    with serve(scripted(*[reply] * times)) as server, pytest.raises(BackendError, match=message):
        talk(client(server.url, retries=2))
    assert len(server.chats) == times


def test_a_context_that_is_full_is_no_fault() -> None:
    full = error(400, "This model's maximum context length is 4096 tokens. However, you requested 5000.")
    with serve(scripted(full)) as server:
        assert talk(client(server.url)) is None


def test_a_server_that_hangs_meets_the_deadline() -> None:
    over = threading.Event()

    def answer(body: Mapping[str, Any]) -> Reply:
        if body["messages"][0]["content"] != "Hello":
            over.wait(60)
        return said("Hi")

    async def run(openai: OpenAIClient) -> None:
        await openai.open()
        openai._limits = replace(
            openai._limits, deadline_s=0.05
        )  # only now: the first question may take its time on a busy machine
        try:
            with pytest.raises(BackendError, match="gave no answer within"):
                await ask(openai)
        finally:
            over.set()
            await openai.close()

    with serve(answer) as server:
        asyncio.run(run(client(server.url)))


def test_no_more_requests_at_once_than_allowed() -> None:
    async def run(openai: OpenAIClient) -> None:
        await openai.open()
        await asyncio.gather(*(ask(openai) for _ in range(12)))
        await openai.close()

    with serve(lambda body: said("Hi")) as server:
        asyncio.run(run(client(server.url, concurrency=3)))
    assert len(server.chats) == 12
    assert server.most_at_once <= 3


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "general")
    monkeypatch.setenv("RLFACTORY_API_KEY", "own")
    with serve(scripted(said("Hi"))) as server:
        talk(client(server.url))
    assert set(server.authorizations) == {"Bearer own"}
    monkeypatch.delenv("RLFACTORY_API_KEY")
    with serve(scripted(said("Hi"))) as server:
        talk(client(server.url))
    assert set(server.authorizations) == {None}  # what is meant for OpenAI is sent to nobody else


def test_what_cannot_work_is_said_at_the_start() -> None:
    def refuse(reply: Reply) -> Any:
        return lambda body: reply

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening
        with pytest.raises(BackendError, match=r"cannot be reached .* start it, or correct the address"):
            talk(client(f"http://127.0.0.1:{unused.getsockname()[1]}"))
    with serve(scripted(), models=["a", "b"]) as server, pytest.raises(UsageError, match=r"2 models.*--model.*a, b"):
        talk(client(server.url))
    unknown = refuse(error(404, "no such model"))
    hint = r"no such model.*Did you mean 'qwen3-4b'"
    with serve(unknown, models=["qwen3-4b"]) as server, pytest.raises(BackendError, match=hint):
        talk(client(server.url, "qwen3-4"))
    pinned = refuse(error(400, "Pinned to 'a'."))
    with serve(pinned, models=[]) as server, pytest.raises(BackendError, match=r"HTTP status 400: Pinned to 'a'\.$"):
        talk(client(server.url, "b"))
    with serve(refuse(error(401, "who are you"))) as server, pytest.raises(BackendError, match="RLFACTORY_API_KEY"):
        talk(client(server.url))
    no_tools = error(400, '"auto" tool choice requires --enable-auto-tool-choice')
    with serve(refuse(no_tools)) as server, pytest.raises(BackendError, match="Start the server with tool calling"):
        talk(client(server.url))
    with pytest.raises(UsageError, match="http://HOST:PORT/v1"):
        client("localhost:8000")


def test_a_server_without_a_list_of_models_is_believed() -> None:
    with serve(scripted(said("Hi")), models=error(404, "not here")) as server:
        assert talk(client(server.url, "mine")) is not None
    assert server.chats[0]["model"] == "mine"


def test_the_newer_name_of_the_token_limit_is_found_out() -> None:
    def answer(body: Mapping[str, Any]) -> Reply:
        if "max_tokens" in body:
            return error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        return said("Hi")

    with serve(answer) as server:
        assert talk(client(server.url)) is not None
    assert server.chats[-1]["max_completion_tokens"] == 50


def test_more_can_be_asked_of_a_server_than_every_server_knows() -> None:
    async def run(openai: OpenAIClient) -> None:
        await openai.open()
        await openai.answer(Request(ASK, (), PARAMS), {"seed": 7, "response_format": {"type": "json_object"}})
        await ask(openai)
        await openai.close()

    with serve(lambda body: said("Hi")) as server:
        asyncio.run(run(client(server.url, extra={"min_p": 0.1, "seed": 3})))
    one, other = server.chats
    assert (one["seed"], one["min_p"], one["response_format"]) == (7, 0.1, {"type": "json_object"})
    assert (other["seed"], other["min_p"], "response_format" in other) == (3, 0.1, False)
    assert all(body["min_p"] == 0.1 for body in server.requests)


@pytest.mark.parametrize(("value", "seconds"), [("7", 7.0), ("0.5", 0.5), ("soon", 0.0), ("nan", 0.0), ("-1", 0.0)])
def test_without_retries_a_refusal_says_what_it_was(value: str, seconds: float) -> None:
    async def run(openai: OpenAIClient) -> BackendError:
        await openai.open(probe=False)
        try:
            with pytest.raises(BackendError, match="HTTP status 429: slow down") as refused:
                await ask(openai)
            return refused.value
        finally:
            await openai.close()

    with serve(scripted(error(429, "slow down", Retry_After=value))) as server:
        refused = asyncio.run(run(client(server.url, retries=0)))
    assert (refused.status, refused.retry_after_s) == (429, seconds)
    assert len(server.requests) == 1


def test_a_lost_connection_has_no_status() -> None:
    with serve(scripted(Reply(0))) as server, pytest.raises(BackendError, match="cannot be reached") as lost:
        talk(client(server.url, retries=0))
    assert (lost.value.status, lost.value.retry_after_s) == (None, 0.0)


def test_a_server_is_looked_for_without_asking_its_model() -> None:
    async def run(openai: OpenAIClient, models: list[str]) -> None:
        assert await openai.served() == models  # also before it is open
        await openai.open(probe=False)
        assert openai.model == "toy"
        await openai.close()

    with serve(scripted()) as server:
        asyncio.run(run(client(server.url), ["toy"]))
    assert server.requests == []


def test_a_server_that_is_away_at_first_can_be_opened_later() -> None:
    loading = [error(503, "loading the model")]

    async def run(openai: OpenAIClient) -> Sampled | None:
        with pytest.raises(BackendError, match="HTTP status 503: loading") as refused:
            await openai.open(probe=False)
        assert refused.value.status == 503
        loading.clear()
        await openai.open(probe=False)
        try:
            return await ask(openai)
        finally:
            await openai.close()

    with serve(scripted(said("Hi")), models=lambda: loading[0] if loading else ["toy"]) as server:
        found = asyncio.run(run(client(server.url, retries=0)))
    assert found is not None


def test_a_cancelled_request_closes_its_connection() -> None:
    """A server that is not told goes on sampling for nobody."""

    async def run() -> None:
        asked, gone = asyncio.Event(), asyncio.Event()

        async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            while await reader.read(4096):
                pass
            gone.set()
            writer.close()

        server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        openai = client(f"http://127.0.0.1:{port}", "toy")
        openai._connect()
        asking = asyncio.create_task(ask(openai))
        await asyncio.wait_for(asked.wait(), 60)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(gone.wait(), 60)
        await openai.close()
        server.close()
        await server.wait_closed()

    asyncio.run(run())
