"""What a request leaves to the server: known by an id of the attempt, or refused; and what has no effect is counted."""

from __future__ import annotations

import asyncio
import gzip
import json
from contextlib import suppress
from typing import Any

import pytest
from agent_conversations import Asked, system, user
from agent_server import (
    ANTHROPIC_TOOL,
    CHAT_PATH,
    MESSAGES_PATH,
    RESPONSES_PATH,
    RESPONSES_TOOL,
    THOUGHT_CALL,
    Served,
    served,
)
from chat_families import formats
from conversations import CHAT, SEARCH, check_exact
from hypothesis import given, settings
from hypothesis import strategies as st
from rlfactory_agents import server
from rlfactory_agents.exchange import RequestError
from rlfactory_agents.past import Past
from rlfactory_agents.reading import opening_ids
from rlfactory_agents.server import FORMATS
from rlfactory_devkit.tokenizers import tiny_tokenizer

from rlfactory_core.chat import choose_format
from rlfactory_core.types import Message


def check_one_row(made: Served) -> None:
    assert [turn.fork for turn in made.conversation.turns] == ["", ""]
    check_exact(made.conversation.turns, made.sampler)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_thread_of_messages_goes_on(streamed: bool) -> None:
    async def play() -> None:
        async with served(THOUGHT_CALL, "him", "again") as made:
            body = {"max_tokens": 300, "system": "Be short.", "tools": [ANTHROPIC_TOOL], "stream": streamed}
            first = {**body, "messages": [user("Who?")], "thread": {"type": "create"}}
            text = (await made.post(MESSAGES_PATH, first)).text
            start = (
                json.loads(next(line for line in text.splitlines() if line.startswith("data: "))[6:])
                if streamed
                else {}
            )
            data = start["message"] if streamed else json.loads(text)
            found = {"type": "tool_result", "tool_use_id": "call_0_0", "content": "found"}
            thread = {"type": "continue", "previous_message_id": data["id"]}
            again = {"max_tokens": 300, "messages": [{"role": "user", "content": [found]}], "thread": thread}
            last = (await made.post(MESSAGES_PATH, again)).json()
            assert last["content"] == [{"type": "text", "text": "him"}]
            check_one_row(made)
            lost = await made.post(MESSAGES_PATH, {**again, "thread": {**thread, "previous_message_id": "msg_x"}})
            assert lost.status_code == 404
            assert lost.json()["error"]["details"] == {"error_code": "thread_not_found"}  # SDKs then send it whole

    asyncio.run(play())


def test_responses_go_on_from_an_id() -> None:
    async def play() -> None:
        async with served(THOUGHT_CALL, "him") as made:
            body = {"instructions": "Be short.", "tools": [RESPONSES_TOOL]}
            first = (await made.post(RESPONSES_PATH, {**body, "input": "Who?"})).json()
            found = {"type": "function_call_output", "call_id": "call_0_0", "output": "found"}
            again = {**body, "input": [found], "previous_response_id": first["id"]}
            assert (await made.post(RESPONSES_PATH, again)).json()["output"][0]["content"][0]["text"] == "him"
            check_one_row(made)
            assert (await made.post(RESPONSES_PATH, {**again, "previous_response_id": "resp_x"})).status_code == 404

    asyncio.run(play())


def test_items_are_known_by_their_ids() -> None:
    async def play() -> None:
        async with served(THOUGHT_CALL, "him") as made:
            body = {"tools": [RESPONSES_TOOL]}
            first = (await made.post(RESPONSES_PATH, {**body, "input": [user("Who?")]})).json()
            said = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
            assert len(said) == 3
            found = {"type": "function_call_output", "call_id": "call_0_0", "output": "found"}
            await made.post(RESPONSES_PATH, {**body, "input": [user("Who?"), *said, found]})
            check_one_row(made)
            unknown = [user("Who?"), {"type": "item_reference", "id": "msg_x"}]
            assert (await made.post(RESPONSES_PATH, {"input": unknown})).status_code == 404

    asyncio.run(play())


def test_an_answer_is_continued_where_its_beginning_is_given() -> None:
    async def play() -> None:
        async with served('"a": 1}', "him") as made:
            asked = [user("Who?"), {"role": "assistant", "content": "{"}]
            data = (await made.post(MESSAGES_PATH, {"max_tokens": 99, "messages": asked})).json()
            assert data["content"][0]["text"] == '"a": 1}'
            (turn,) = made.conversation.turns
            assert CHAT.decode(turn.context_ids).endswith("<assistant>{")
            history = [asked[0], {"role": "assistant", "content": '{"a": 1}'}, user("And?")]
            await made.post(MESSAGES_PATH, {"max_tokens": 99, "messages": history})
            check_one_row(made)

    asyncio.run(play())


def test_a_turn_ends_at_a_stop_text() -> None:
    """What was sampled after the text is nowhere: neither for the agent, nor in the trajectory."""

    async def play() -> None:
        asked = Asked(["Thought.\nObservation: made up", "him"])
        said = await asked.ask(user("Who?"), stop=["Observation:"])
        assert said["content"] == "Thought.\n"
        await asked.ask(user("Who?"), said, user("Observation: real"))
        first, second = asked.conversation.turns
        assert CHAT.decode(first.sampled_ids) == "Thought.\nObservation:"
        assert len(first.sampled_ids) == len(first.logprobs)
        assert CHAT.decode(second.context_ids).startswith("<stop><user>Observation: real")
        assert asked.sampler.calls[-1][0] == (*first.context_ids, *first.sampled_ids, *second.context_ids)
        assert asked.forks == ["", ""]
        assert asked.conversation.overridden == {}

    asyncio.run(play())


def test_each_conversation_of_a_subagent_is_named_so() -> None:
    async def play() -> None:
        asked = Asked(lambda number: "him")
        for instructions, question in (("Lead.", "Who?"), ("Count.", "a"), ("Count.", "b"), ("Lead.", "Where?")):
            await asked.ask(system(instructions), user(question))
        assert asked.forks == ["", "subagent", "subagent", "fresh_prompt"]

    asyncio.run(play())


@pytest.mark.parametrize(
    ("family", "head"),
    [("qwen3", "assistant\n"), ("deepseek-v3", "<think></think>\n\n"), ("gpt-oss", "<|channel|>final<|message|>")],
)
def test_an_answer_is_begun_as_the_model_begins_its_text(family: str, head: str) -> None:
    chat = choose_format(formats(), tiny_tokenizer(family), name=family)
    for opening in ("{", "<", "|", "\n"):  # two of them are also in the token that ends a turn
        ids = (*chat.initial_ids([Message("user", "?")], ()), *opening_ids(chat, opening))
        assert chat.decode(ids).endswith(head + opening)


U = [user("?")]
REFUSED = [
    (CHAT_PATH, {"messages": U, "functions": [{"name": "count"}]}, "older form of tools"),
    (CHAT_PATH, {"messages": U, "web_search_options": {"search_context_size": "low"}}, "no tools run"),
    (CHAT_PATH, {"messages": U, "thread_id": "7"}, "may say what the model is to read"),
    (CHAT_PATH, {"messages": U, "extra": {"turns": [{"role": "user"}]}}, "may say what the model is to read"),
    (CHAT_PATH, {"messages": [*U, {"role": "assistant", "function_call": {"name": "x"}}]}, "Send tool_calls"),
    (CHAT_PATH, {"messages": [*U, {"role": "assistant", "tool_calls": [{"function": {}}]}]}, "without results"),
    (CHAT_PATH, {"messages": U, "stream_options": [1]}, "expected an object"),
    (RESPONSES_PATH, {"input": "?", "conversation": "conv_1"}, "send the whole conversation"),
    (RESPONSES_PATH, {"input": "?", "prompt": {"id": "p"}}, "no stored prompts"),
    (RESPONSES_PATH, {"input": "?", "background": True}, "comes with its request"),
    (RESPONSES_PATH, {"input": "?", "tools": [{"type": "namespace", "name": "crm", "tools": []}]}, "'namespace'"),
    (RESPONSES_PATH, {"input": [{"type": "compaction", "encrypted_content": "x"}]}, "'compaction'"),
    (MESSAGES_PATH, {"messages": U, "container": "c"}, "nothing is kept"),
    (MESSAGES_PATH, {"messages": U, "mcp_servers": [{"type": "url", "url": "http://x"}]}, "no tools run"),
    (MESSAGES_PATH, {"messages": U, "thread": {"type": "resume"}}, "expected the type create or continue"),
    (MESSAGES_PATH, {"messages": U, "tools": [{"type": "bash_20250124", "name": "bash"}]}, "'bash_20250124'"),
    (MESSAGES_PATH, {"messages": U, "tools": [{"type": "web_search_20250305", "name": "w"}]}, "expected functions"),
    (MESSAGES_PATH, {"messages": [user([{"type": "document", "source": {}}])]}, "'document'"),  # type: ignore[arg-type]
]
COUNTED = [
    (CHAT_PATH, {"messages": U, "chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "none"}),
    (CHAT_PATH, {"messages": U, "structured_outputs": {"json": {}}, "top_logprobs": 3, "unheard_of": 1}),
    (CHAT_PATH, {"messages": U, "max_tokens": 10**9}),
    (CHAT_PATH, {"messages": [{**user("?"), "name": "ann"}]}),
    (CHAT_PATH, {"messages": U, "tools": [{"type": "function", "function": {**SEARCH["function"], "strict": True}}]}),  # type: ignore[dict-item]
    (CHAT_PATH, {"messages": U, "response_format": {"type": "json_object"}, "tool_choice": "required"}),
    (RESPONSES_PATH, {"input": "?", "text": {"format": {"type": "json_object"}}, "tool_choice": "required"}),
    (RESPONSES_PATH, {"input": "?", "max_tool_calls": 2, "include": ["web_search_call.results"]}),
    (MESSAGES_PATH, {"messages": U, "output_config": {"effort": "low"}, "thinking": {"type": "enabled"}}),
    (MESSAGES_PATH, {"messages": U, "tool_choice": {"type": "any"}, "context_management": {"edits": [{}]}}),
]
NOT_COUNTED = {"messages", "input", "tools"}
ALIASES = {"messages": "messages.name", "tools": "tools.strict"}


@pytest.mark.parametrize(("path", "body", "words"), REFUSED)
def test_what_the_model_would_not_see_is_refused(path: str, body: Any, words: str) -> None:
    async def play() -> None:
        async with served("him") as made:
            response = await made.post(path, body)
            assert response.status_code == 400
            assert words in response.json()["error"]["message"]
            assert made.conversation.turns == ()

    asyncio.run(play())


@pytest.mark.parametrize(("path", "body"), COUNTED)
def test_what_has_no_effect_is_counted(path: str, body: Any) -> None:
    async def play() -> None:
        async with served("him") as made:
            assert (await made.post(path, {**body, "user": "ann", "logit_bias": {}, "stop": None})).is_success
            expected = set(body) - NOT_COUNTED or {ALIASES[list(body)[-1]]}
            assert made.conversation.overridden == dict.fromkeys(expected, 1)

    asyncio.run(play())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "content", "x"]), inner),
    max_leaves=4,
)
FIELDS = ["messages", "input", "tools", "tool_choice", "stream_options", "thread", "system", "instructions", "include"]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(FORMATS),
    st.dictionaries(st.sampled_from([*FIELDS, "stop", "n", "max_tokens"]), JSON),
    st.booleans(),
)
def test_a_request_of_any_shape_is_read_or_refused(form: Any, body: dict[str, Any], whole: bool) -> None:
    usual = {"messages": U, "input": "?"} if whole else {}
    with suppress(RequestError):
        form.read({**body, **usual}, Past())


def test_bodies_may_be_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with served("him", "her") as made:
            packed = gzip.compress(json.dumps({"messages": U}).encode())
            headers = {"content-encoding": "gzip", "api-key": made.endpoint.key, "authorization": ""}  # Azure's
            assert (await made.client.post(CHAT_PATH, content=packed, headers=headers)).is_success
            monkeypatch.setattr(server, "MAX_BODY", 10_000)
            bomb = gzip.compress(b" " * 10**6)
            for content, coding, status in [(bomb, "gzip", 413), (packed[:-9], "gzip", 400), (packed, "br", 415)]:
                headers["content-encoding"] = coding
                assert (await made.client.post(CHAT_PATH, content=content, headers=headers)).status_code == status

    asyncio.run(play())


def test_models_and_the_tokens_of_a_prompt() -> None:
    async def play() -> None:
        async with served("him") as made:
            assert (await made.client.get("/models/gpt-9/x")).json()["id"] == "gpt-9/x"
            data = (await made.post("/messages/count_tokens", {"messages": U})).json()
            more = (await made.post("/responses/input_tokens", {"input": "??"})).json()
            assert (await made.post(CHAT_PATH, {"messages": U})).json()["usage"]["prompt_tokens"] == data[
                "input_tokens"
            ]
            assert more == {"object": "response.input_tokens", "input_tokens": data["input_tokens"] + 1}
            assert len(made.conversation.turns) == 1

    asyncio.run(play())


def test_a_websocket_is_refused_without_a_word_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with served() as made:
            headers = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
            response = await made.client.get("/responses", headers=headers)
            assert response.status_code == 404
            assert "without WebSockets" in response.json()["error"]["message"]

    asyncio.run(play())
    assert not caplog.records
