"""The gateway over HTTP: three protocols, streaming, keys, refusals and clients that hang up."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import httpx
import pytest
from agent_conversations import user
from agent_server import (
    ANTHROPIC_TOOL,
    CHAT_PATH,
    MESSAGES_PATH,
    RESPONSES_PATH,
    RESPONSES_TOOL,
    THOUGHT_CALL,
    events,
    served,
)
from conversations import CHAT, SEARCH, RecordingSampler, calling, episode
from rlfactory_agents import server
from rlfactory_agents.conversation import Conversation
from rlfactory_agents.past import Past
from rlfactory_agents.server import Gateway

from rlfactory_core import serving
from rlfactory_core.rollout import TokenModel


def test_chat_completions() -> None:
    async def play() -> None:
        async with served(THOUGHT_CALL, "him") as made:
            body = {"model": "any", "messages": [user("Who?")], "tools": [SEARCH], "logprobs": True}
            data = (await made.post(CHAT_PATH, body)).json()
            (choice,) = data["choices"]
            assert choice["finish_reason"] == "tool_calls"
            assert choice["message"]["content"] == "Let me look."
            assert choice["message"]["reasoning_content"] == "hm"
            call = choice["message"]["tool_calls"][0]
            assert (call["type"], call["function"]["name"]) == ("function", "search")
            assert json.loads(call["function"]["arguments"]) == {"query": "é"}
            assert len(choice["logprobs"]["content"]) == data["usage"]["completion_tokens"]
            tool = {"role": "tool", "tool_call_id": call["id"], "content": "found"}
            last = await made.post(CHAT_PATH, {**body, "messages": [user("Who?"), choice["message"], tool]})
            assert last.json()["choices"][0]["message"]["content"] == "him"
            assert [turn.row for turn in made.conversation.turns] == [0, 0]
            assert [each["id"] for each in (await made.client.get("/models")).json()["data"]] == ["policy"]

    asyncio.run(play())


def test_chat_completions_streamed() -> None:
    async def play() -> None:
        async with served(THOUGHT_CALL + calling(query="b")) as made:
            options = {"stream": True, "stream_options": {"include_usage": True}, "tools": [SEARCH]}
            response = await made.post(CHAT_PATH, {"messages": [user("Who?")], **options})
            *chunks, end, usage = events(response)
            assert response.text.rstrip().endswith("data: [DONE]")
            parts = [
                {key for key, value in chunk["choices"][0]["delta"].items() if value and key != "role"}
                for chunk in chunks
            ]
            assert parts == [set(), {"reasoning_content"}, {"content"}, {"tool_calls"}, {"tool_calls"}]
            calls = [chunk["choices"][0]["delta"]["tool_calls"] for chunk in chunks[-2:]]
            assert [[call["index"] for call in each] for each in calls] == [[0], [1]]
            assert end["choices"][0]["finish_reason"] == "tool_calls"
            assert usage["usage"]["completion_tokens"] > 0

    asyncio.run(play())


def test_responses_and_their_stream() -> None:
    async def play() -> None:
        async with served(THOUGHT_CALL, "him", "she") as made:
            body = {"model": "any", "instructions": "Be short.", "input": "Who?", "tools": [RESPONSES_TOOL]}
            data = (await made.post(RESPONSES_PATH, body)).json()
            kinds = [item["type"] for item in data["output"]]
            assert kinds == ["reasoning", "message", "function_call"]
            call = data["output"][-1]
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "found"}
            history = [{"role": "user", "content": "Who?"}, *data["output"], output]
            response = await made.post(RESPONSES_PATH, {**body, "input": history, "stream": True})
            sent = events(response)
            assert [each["sequence_number"] for each in sent] == list(range(len(sent)))
            assert sent[-1]["type"] == "response.completed"
            assert sent[-1]["response"]["output"][0]["content"][0]["text"] == "him"
            assert [turn.row for turn in made.conversation.turns] == [0, 0]

    asyncio.run(play())


def test_anthropic_messages_and_their_stream() -> None:
    async def play() -> None:
        async with served(THOUGHT_CALL, "him") as made:
            body = {"max_tokens": 300, "system": "Be short.", "tools": [ANTHROPIC_TOOL]}
            url, key = made.endpoint.anthropic_url, {"x-api-key": made.endpoint.key}
            async with httpx.AsyncClient(base_url=url, headers=key, trust_env=False) as client:
                data = (await client.post("/v1/messages", json={**body, "messages": [user("Who?")]})).json()
                assert data["stop_reason"] == "tool_use"
                assert [block["type"] for block in data["content"]] == ["thinking", "text", "tool_use"]
                assert data["content"][-1]["input"] == {"query": "é"}
                found = {"type": "tool_result", "tool_use_id": data["content"][-1]["id"], "content": "found"}
                history = [user("Who?"), {"role": "assistant", "content": data["content"]}]
                history.append({"role": "user", "content": [found]})
                sent = events(await client.post("/v1/messages", json={**body, "messages": history, "stream": True}))
            assert sent[0]["type"] == "message_start"
            assert sent[-1]["type"] == "message_stop"
            assert "".join(each["delta"].get("text", "") for each in sent if "delta" in each) == "him"
            assert [turn.row for turn in made.conversation.turns] == [0, 0]

    asyncio.run(play())


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (CHAT_PATH, {}, 400, "expected a list of messages"),
        (CHAT_PATH, {"messages": [{"role": "robot"}]}, 400, "expected a role among"),
        (CHAT_PATH, {"messages": [user("?")], "n": 0}, 400, "n is 0"),
        (CHAT_PATH, {"messages": [user("?")], "tools": True}, 400, "tools is True; expected a list"),
        (CHAT_PATH, {"messages": [user("?")], "stop": 0.5}, 400, "stop is 0.5; expected a list"),
        (
            CHAT_PATH,
            {"messages": [user("?")], "tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]},
            400,
            "expected a JSON schema",
        ),
        (CHAT_PATH, {"messages": [user("?")], "tools": [{"type": "web_search"}]}, 400, "expected functions"),
        (
            CHAT_PATH,
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            400,
            "reads text only",
        ),
        (CHAT_PATH, [1], 400, "expected a JSON object"),
        (RESPONSES_PATH, {"input": "?", "previous_response_id": "r"}, 404, "no answer of this attempt"),
        (MESSAGES_PATH, {"messages": [{"role": "tool", "content": "x"}]}, 400, "expected the role user or assistant"),
        ("/embeddings", {}, 404, "POST /v1/chat/completions"),
    ],
)
def test_what_cannot_be_done_is_said(path: str, body: Any, status: int, words: str) -> None:
    async def play() -> None:
        async with served("him") as made:
            response = await made.post(path, body)
            assert response.status_code == status
            assert words in response.json()["error"]["message"]
            assert response.headers["x-should-retry"] == "false"
            assert made.conversation.turns == ()

    asyncio.run(play())


def test_parameters_that_the_run_decides_are_counted() -> None:
    async def play() -> None:
        async with served("a", "b") as made:
            body = {"messages": [user("?")], "temperature": 0.2, "response_format": {"type": "json_object"}}
            await made.post(CHAT_PATH, body)
            await made.post(CHAT_PATH, {"messages": [user("?!")], "temperature": 0.2, "tool_choice": "auto"})
            assert made.conversation.overridden == {"temperature": 2, "response_format": 1}
            assert {each.temperature for each in made.sampler.params} == {1.0}

    asyncio.run(play())


@pytest.mark.parametrize("key", ["", "Bearer nonsense", "rlf-nonsense"])
def test_another_key_opens_nothing(key: str) -> None:
    async def play() -> None:
        async with served("him") as made:
            headers = {"authorization": key}
            for path in (CHAT_PATH, MESSAGES_PATH):
                response = await made.post(path, {"messages": [user("?")]}, headers=headers)
                assert response.status_code == 401
                assert made.endpoint.key not in response.text
            assert (await made.client.get("/models", headers=headers)).status_code == 401

    asyncio.run(play())


def test_a_key_ends_with_its_attempt() -> None:
    async def play() -> None:
        async with served("him", "him") as made:
            other = Conversation(episode(), TokenModel(CHAT, made.sampler))
            with made.gateway.serving(other) as endpoint:
                headers = {"authorization": f"Bearer {endpoint.key}"}
                assert (await made.post(CHAT_PATH, {"messages": [user("?")]}, headers=headers)).is_success
            assert (await made.post(CHAT_PATH, {"messages": [user("?")]}, headers=headers)).status_code == 401
            assert len(other.turns) == 1
            assert made.conversation.turns == ()
            await made.conversation.close()
            assert (await made.post(CHAT_PATH, {"messages": [user("?")]})).status_code == 403

    asyncio.run(play())


def test_a_request_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_BODY", 1000)

    async def play() -> None:
        async with served("him") as made:
            response = await made.post(CHAT_PATH, {"messages": [user("x" * 2000)]})
            assert response.status_code == 413
            assert (await made.client.post(CHAT_PATH, content=b"{not json")).status_code == 400

    asyncio.run(play())


@pytest.mark.parametrize("sent", [b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-", b""])
def test_a_client_that_does_not_finish_its_head_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_S", 0.2)

    async def play() -> None:
        async with served() as made:
            port = int(made.endpoint.url.split(":")[2].partition("/")[0])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            async with asyncio.timeout(60):
                assert await reader.read() == b""
            writer.close()

    asyncio.run(play())


def test_a_client_that_goes_within_its_body_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with served() as made:
            port = int(made.endpoint.url.split(":")[2].partition("/")[0])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            key = f"authorization: Bearer {made.endpoint.key}".encode()
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n"
            writer.write(head + key + b"\r\n\r\n{")
            writer.write_eof()
            async with asyncio.timeout(60):
                await reader.read()
            writer.close()

    asyncio.run(play())
    assert not [each for each in caplog.records if each.exc_info]


def test_a_client_that_hangs_up_ends_the_sampling() -> None:
    async def play() -> None:
        async with served("one", "two") as made:
            made.sampler.go.clear()
            asking = asyncio.create_task(made.post(CHAT_PATH, {"messages": [user("Who?")]}))
            await made.sampler.asked.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await made.sampler.released.wait()  # the gateway notices
            made.sampler.go.set()
            assert (await made.post(CHAT_PATH, {"messages": [user("Who?")]})).is_success
            assert len(made.conversation.turns) == 1

    asyncio.run(play())


@pytest.mark.slow
def test_many_trajectories_at_once_get_their_own_answers() -> None:
    async def play() -> None:
        gateway = Gateway()
        await gateway.open()

        async def attempt(number: int, client: httpx.AsyncClient) -> None:
            sampler = RecordingSampler([f"answer {number}", f"again {number}"])
            conversation = Conversation(episode(), TokenModel(CHAT, sampler))
            with gateway.serving(conversation) as endpoint:
                history = [user(f"Question {number}")]
                for text in ("answer", "again"):
                    headers = {"authorization": f"Bearer {endpoint.key}"}
                    address = f"{endpoint.url}{CHAT_PATH}"
                    said = (await client.post(address, json={"messages": history}, headers=headers)).json()
                    message = said["choices"][0]["message"]
                    assert message["content"] == f"{text} {number}"
                    history += [message, user("Sure?")]
                assert [turn.row for turn in conversation.turns] == [0, 0]

        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(trust_env=False, timeout=60, limits=limits) as client:
            await asyncio.gather(*(attempt(number, client) for number in range(100)))
        await gateway.close()

    asyncio.run(play())


def test_answers_are_sent_at_once() -> None:
    """asyncio sets TCP_NODELAY only on sockets whose protocol is named; without it an answer waits for 40 ms."""

    async def play() -> list[int]:
        gateway = Gateway()
        await gateway.open()
        try:
            return [each.proto for served in gateway._server.servers for each in served.sockets]
        finally:
            await gateway.close()

    assert asyncio.run(play()) == [socket.IPPROTO_TCP]


def test_a_request_under_way_is_no_error_when_the_gateway_closes(caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    class Hangs:
        past = Past()

        async def answer(self, asked: Any) -> Any:
            begun.set()
            await asyncio.Event().wait()

    async def main() -> None:
        gateway = Gateway()
        await gateway.open()
        with gateway.serving(Hangs()) as endpoint:  # type: ignore[arg-type]
            headers = {"authorization": f"Bearer {endpoint.key}"}
            async with httpx.AsyncClient(base_url=endpoint.url, headers=headers, trust_env=False, timeout=30) as client:
                asking = asyncio.ensure_future(client.post(CHAT_PATH, json={"messages": [user("?")]}))
                await begun.wait()
                await gateway.close()
                await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(main())
    assert not [record for record in caplog.records if record.exc_info]
