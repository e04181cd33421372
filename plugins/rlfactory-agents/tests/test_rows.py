"""What an agent sends is matched to the trajectory's rows: what was sampled is trained, once, as it was sampled."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_conversations import Asked, result, system, user, wire
from chat_families import formats
from conversations import CHAT, LIMITS, SEARCH, RecordingSampler, calling, check_exact, episode, in_loop
from hypothesis import given, settings
from hypothesis import strategies as st
from rlfactory_agents.conversation import MAX_ROWS, Conversation
from rlfactory_agents.exchange import RequestError
from rlfactory_agents.past import Past
from rlfactory_agents.protocols.base import WireFormat
from rlfactory_agents.protocols.chat_completions import ChatCompletions
from rlfactory_agents.server import FORMATS
from rlfactory_devkit.tokenizers import families, tiny_tokenizer

from rlfactory_core.chat import TemplateFormat, choose_format
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.reporting.conversations import conversations
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.rollout import RolloutLimits, TokenModel
from rlfactory_core.types import Message, Row, Sample, SampledTokens, SamplingParams, StopReason, ToolCall, Trajectory

RECORDED = Path(__file__).parent / "recorded"


def stored_conversations(asked: Asked) -> list[Any]:
    """The conversations of what an agent has asked, as they are saved."""
    turns = asked.conversation.turns
    played = Trajectory(Sample("s", "?"), 0, turns, StopReason.NO_TOOL_CALL, tools=asked.conversation.tools, answer="x")
    return conversations(StoredTrajectory.from_line(StoredTrajectory.of(played, CHAT.decode).to_line()).trajectory)


@pytest.mark.parametrize("family", families())
def test_an_agent_gets_arguments_as_json_whatever_its_model_writes(family: str) -> None:
    tokenizer = tiny_tokenizer(family)
    chat = choose_format(formats(), tokenizer, name=family)
    assert isinstance(chat, TemplateFormat)
    given = {"query": 'a "b"', "top": 3}
    text = chat.written(Message("assistant", "", tool_calls=(ToolCall("call_0", "search", json.dumps(given), given),)))
    ids = tuple(tokenizer.encode(text, add_special_tokens=False))

    class Writer(RecordingSampler):
        async def sample(self, prompt: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
            return SampledTokens(ids, (0.0,) * len(ids), "stop")

    conversation = Conversation(episode(LIMITS), TokenModel(chat, Writer([])))
    asked = ChatCompletions().read({"messages": [user("Who?")], "tools": [SEARCH]}, Past())
    (answer,) = asyncio.run(conversation.answer(asked))
    (said,) = wire(answer)["tool_calls"]
    assert json.loads(said["function"]["arguments"]) == given


@in_loop
async def test_a_request_that_continues_appends_only_what_is_new() -> None:
    asked = Asked([calling(query="a"), calling(query="b"), "him"])
    history = [system("Be short."), user("Who?")]
    for text in ("first", "second"):
        said = await asked.ask(*history, tools=[SEARCH])
        history += [said, result(said, text)]
    await asked.ask(*history, tools=[SEARCH])
    turns = asked.conversation.turns
    (whole,) = stored_conversations(asked)
    assert whole.learnt == [True, True, True]
    assert [message.role for message in whole.messages] == [
        "system",
        "user",
        *["assistant", "tool"] * 2,
        "assistant",
    ]
    assert asked.rows == [0, 0, 0]
    assert asked.forks == ["", "", ""]
    assert "first" in CHAT.decode(turns[1].context_ids)
    assert "Be short." not in CHAT.decode(turns[1].context_ids)
    check_exact(turns, asked.sampler)


@pytest.mark.parametrize(
    ("edit", "fork"),
    [
        (lambda h: h, ""),
        (lambda h: [h[0], h[1], {**h[2], "content": "Other words."}, h[3]], "edited_history"),
        (lambda h: [system("Be long."), *h[1:]], "subagent"),
        (lambda h: h[:2], "repeated_prompt"),
        (lambda h: [system("You only sum up."), user("Sum up: …")], "subagent"),
        (lambda h: [*h, system("Now hurry.")], ""),
        (lambda h: [*h[:2], {**h[2], "content": None}, h[3]], ""),
        (lambda h: [*h[:2], {**h[2], "content": "<think>\nhm\n</think>\n\nLet me look."}, h[3]], ""),
        (lambda h: [h[0], user("Who?\nSo far: nothing.")], "compacted"),
        (lambda h: [h[0], user("So far: nothing."), h[2], h[3], user("And?")], "edited_history"),
        (lambda h: [h[0], h[2], h[3], user("And?")], "compacted"),
        (lambda h: [h[0], user("Where?")], "fresh_prompt"),
        (lambda h: [h[0], user("Sum?"), {"role": "assistant", "content": "No."}, user("Where?")], "fresh_prompt"),
        (lambda h: [*h, {"role": "assistant", "content": "I go on."}, user("Yes?")], "edited_history"),
    ],
)
@in_loop
async def test_a_request_that_does_not_continue_begins_a_row(edit: Any, fork: str) -> None:
    asked = Asked([f"<think>\nhm\n</think>\n\nLet me look. {calling(query='a')}", "him"])
    history = [system("Be short."), user("Who?")]
    said = await asked.ask(*history, tools=[SEARCH])
    history += [said, result(said, "found")]
    await asked.ask(*edit(history), tools=[SEARCH])
    assert asked.forks == ["", fork]
    assert asked.rows == [0, 1 if fork else 0]
    check_exact(asked.conversation.turns, asked.sampler)
    found = stored_conversations(asked)
    assert [sum(each.learnt) for each in found] == ([1, 1] if fork else [2])
    if fork:
        assert asked.conversation.turns[1].context_ids == CHAT.initial_ids(found[1].messages[:-1], found[1].tools)


@in_loop
async def test_what_frameworks_change_without_meaning_continues() -> None:
    """They drop reasoning, write arguments anew, and strip texts."""
    asked = Asked([f"<think>\nhm\n</think>\n\nLet me look. {calling(query='é', k=3)}", "him"])
    said = await asked.ask(user("Who?"), tools=[SEARCH])
    call = said["tool_calls"][0]
    call["function"]["arguments"] = json.dumps({"k": 3, "query": "é"}, indent=1)
    again = {**said, "content": "  Let me look.\n"}
    await asked.ask(user("Who?"), again, result(said, "found"), tools=[SEARCH])
    assert asked.forks == ["", ""]
    check_exact(asked.conversation.turns, asked.sampler)


@in_loop
async def test_other_tools_begin_a_row() -> None:
    asked = Asked([calling(query="a"), "him"])
    said = await asked.ask(user("Who?"), tools=[SEARCH])
    await asked.ask(user("Who?"), said, result(said, "found"))
    assert asked.forks == ["", "changed_tools"]


@in_loop
async def test_a_branch_keeps_the_exact_ids_of_what_it_branches_from() -> None:
    asked = Asked(["one", "two", "three"])
    said = await asked.ask(user("Who?"))
    for text in ("Sure?", "Really?"):
        await asked.ask(user("Who?"), said, user(text))
    first, _, third = asked.conversation.turns
    assert asked.forks == ["", "", "branch"]
    kept = (*first.context_ids, *first.sampled_ids)
    assert third.context_ids[: len(kept)] == kept
    check_exact(asked.conversation.turns, asked.sampler)


@in_loop
async def test_concurrent_requests_of_one_history_do_not_share_a_row() -> None:
    asked = Asked(lambda number: f"answer {number}")
    said = await asked.ask(user("Who?"))
    texts = (f"Question {number}" for number in range(5))
    await asyncio.gather(*(asked.ask(user("Who?"), said, user(text)) for text in texts))
    assert sorted(asked.rows) == [0, 0, 1, 2, 3, 4]
    check_exact(asked.conversation.turns, asked.sampler)


@in_loop
async def test_several_answers_are_rows_of_their_own() -> None:
    asked = Asked(lambda number: f"answer {number}")
    answers = await asked.answers(user("Who?"), n=3)
    assert sorted(each.message.content for each in answers) == ["answer 0", "answer 1", "answer 2"]
    assert asked.forks == ["", "repeated_prompt", "repeated_prompt"]
    await asked.ask(user("Who?"), wire(answers[1]), user("Sure?"))
    assert asked.rows == [0, 1, 2, 1]
    check_exact(asked.conversation.turns, asked.sampler)


@in_loop
async def test_an_answer_without_an_end_is_not_continued() -> None:
    asked = Asked(["a long answer", "him"])
    said = await asked.ask(user("Who?"), max_tokens=5)
    await asked.ask(user("Who?"), said, user("Go on."))
    assert asked.forks == ["", "cut_turn"]
    assert [each.max_tokens for each in asked.sampler.params] == [5, LIMITS.max_turn_tokens]
    check_exact(asked.conversation.turns, asked.sampler)


@in_loop
async def test_malformed_calls_and_calls_without_tools_are_text_for_the_agent() -> None:
    asked = Asked(['<tool_call>\n{"name": "search", "arguments": {\n</tool_call>', calling(query="a"), "him"])
    said = await asked.ask(user("Who?"), tools=[SEARCH])
    assert "tool_calls" not in said
    assert '"search"' in said["content"]
    assert asked.conversation.turns[0].message.tool_calls[0].error  # the trajectory knows what it was
    raw = await asked.ask(user("Write a call."))
    assert raw == {"role": "assistant", "content": calling(query="a")}
    await asked.ask(user("Write a call."), raw, user("Thanks."))
    assert asked.rows == [0, 1, 1]


@in_loop
async def test_parts_of_one_turn_are_one_message_again() -> None:
    """Frameworks send a turn's text and each of its calls as messages of their own."""
    asked = Asked([f"Let me look. {calling(query='a')}{calling(query='b')}", "him"])
    said = await asked.ask(user("Who?"), tools=[SEARCH])
    parts = [{"role": "assistant", "content": said["content"]}]
    parts += [{"role": "assistant", "content": None, "tool_calls": [call]} for call in said["tool_calls"]]
    results = [result(said, text, n) for n, text in enumerate("xy")]
    await asked.ask(user("Who?"), *parts[:2], results[0], parts[2], results[1], tools=[SEARCH])
    assert asked.forks == ["", ""]
    check_exact(asked.conversation.turns, asked.sampler)


def test_a_system_message_that_a_template_leaves_out_after_an_answer_is_said() -> None:
    chat = choose_format(formats(), tiny_tokenizer("qwen3-coder"), name="qwen3-coder")
    hoisting = choose_format(formats(), tiny_tokenizer("deepseek-v3"), name="deepseek-v3")

    class Writer(RecordingSampler):
        async def sample(self, prompt: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
            return SampledTokens((chat.stop_token_ids[0],), (0.0,), "stop")

    async def forks(chat: ChatFormat) -> list[str]:
        conversation = Conversation(episode(LIMITS), TokenModel(chat, Writer([])))
        history = [user("Who?"), {"role": "assistant", "content": ""}, system("Be quick."), user("Now?")]
        for asked in (history[:1], history):
            await conversation.answer(ChatCompletions().read({"messages": asked}, Past()))
        return [turn.fork for turn in conversation.turns]

    assert asyncio.run(forks(hoisting)) == ["", "late_system"]  # it writes all of them at the beginning
    with pytest.raises(RequestError, match="does not write this system message"):
        asyncio.run(forks(chat))


@pytest.mark.parametrize(
    ("limits", "code", "stop"),
    [
        (RolloutLimits(1, 100, 400, 10_000), "turn_limit", StopReason.MAX_TURNS),
        (RolloutLimits(40, 0, 400, 10_000), "tool_call_limit", StopReason.TOOL_BUDGET),
        (RolloutLimits(40, 100, 400, 210), "context_length_exceeded", StopReason.LENGTH),
    ],
)
@in_loop
async def test_limits_refuse_the_next_request(limits: RolloutLimits, code: str, stop: StopReason) -> None:
    asked = Asked([calling(query="a"), "him"], limits)
    said = await asked.ask(user("Who?"), tools=[SEARCH])
    with pytest.raises(RequestError) as error:
        await asked.ask(user("Who?"), said, result(said, "found"), tools=[SEARCH])
    assert error.value.code == code
    assert asked.conversation.stop is stop


@in_loop
async def test_a_full_context_ends_no_attempt_that_goes_on_in_another() -> None:
    heard: list[StopReason | None] = []
    limits = RolloutLimits(9, 9, 100, 100)
    conversation = Conversation(episode(limits), TokenModel(CHAT, RecordingSampler(["him"])), heard.append)
    with pytest.raises(RequestError, match="fills the context"):
        await conversation.answer(ChatCompletions().read({"messages": [user("Who? " * 30)]}, Past()))
    await conversation.answer(ChatCompletions().read({"messages": [user("Who?")]}, Past()))
    assert heard == [StopReason.LENGTH, None]
    assert conversation.stop is None


@in_loop
async def test_an_agent_that_edits_for_ever_is_stopped() -> None:
    asked = Asked(lambda number: "yes", RolloutLimits(1000, 100, 40, 10_000))
    for number in range(MAX_ROWS):
        await asked.ask(user(f"Who {number}?"))
    with pytest.raises(RequestError, match="separate conversations"):
        await asked.ask(user("Who?"))
    assert asked.conversation.stop is StopReason.MAX_ROWS
    assert len(asked.sampler.live) <= 1  # only the last row's cache is held


@in_loop
async def test_a_cancelled_request_leaves_nothing_in_the_trajectory() -> None:
    asked = Asked(["one", "two"])
    said = await asked.ask(user("Who?"))
    asked.sampler.go.clear()
    lost = asyncio.create_task(asked.ask(user("Who?"), said, user("Sure?")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    lost.cancel()
    await asyncio.gather(lost, return_exceptions=True)
    asked.sampler.go.set()
    asked.sampler.params.pop()
    await asked.ask(user("Who?"), said, user("Sure?"))
    assert asked.rows == [0, 0]
    check_exact(asked.conversation.turns, asked.sampler)


EXPECTED_FORKS = {
    "anthropic-sdk": ["", ""],
    "langgraph": ["", ""],
    "langgraph-stream": ["", ""],
    "openai-agents-chat": ["", ""],
    "openai-agents-responses": ["", ""],
    "openai-sdk": ["", ""],
    "qwen-agent": [""],
    "smolagents-code": ["", "edited_history"],
    "smolagents-tools": ["", "edited_history"],
}


@pytest.mark.parametrize("name", EXPECTED_FORKS)
def test_recorded_requests_of_frameworks(name: str) -> None:
    """What real frameworks sent: which of them continue their history, and which rewrite it."""
    requests = [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]

    async def play() -> None:
        sampler = RecordingSampler([_said_in(requests), "Ransta"])
        conversation = Conversation(episode(), TokenModel(CHAT, sampler))
        for recorded in requests:
            form = _format(recorded["path"])
            body = {**recorded["body"], "max_tokens": 400}  # a token is a byte here
            await conversation.answer(form.read(body, Past()))
        assert [turn.fork for turn in conversation.turns] == EXPECTED_FORKS[name]
        check_exact(conversation.turns, sampler)

    asyncio.run(play())


def _format(path: str) -> WireFormat:
    return next(each for each in FORMATS if path.endswith(each.path))


def _said_in(requests: list[dict[str, Any]]) -> str:
    """The model's first turn, which the second request has in its history, as a model writes it."""
    if len(requests) == 1:
        return "Ransta"
    messages = _format(requests[1]["path"]).read(requests[1]["body"], Past()).messages
    said = next(message for message in messages if message.role == "assistant")
    calls = (
        f"<tool_call>\n{json.dumps({'name': call.name, 'arguments': dict(call.arguments or {})})}\n</tool_call>"
        for call in said.tool_calls
    )
    if not said.tool_calls:  # smolagents, which writes its turns anew
        return "Thought: look."
    return "\n".join([f"<think>\nI should look this up.\n</think>\n\n{said.content}", *calls])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_random_edits_of_histories(seed: int) -> None:
    """Whatever an agent does to its history, every trained id was sampled once, in exactly that context."""
    rng = random.Random(seed)

    async def play() -> None:
        asked = Asked(lambda number: calling(query=f"q{number}") if rng.random() < 0.6 else f"text {number} ")
        histories: list[list[dict[str, Any]]] = [[system("S"), user("Who?")]]
        for step in range(rng.randint(2, 14)):
            base = rng.choice(histories)
            history = _edited(rng, base, step)
            said = await asked.ask(*history, tools=[SEARCH] if rng.random() < 0.9 else [])
            after = [result(said, f"r{step}", index) for index in range(len(said.get("tool_calls", ())))]
            histories.append([*history, said, *(after or [user(f"And {step}?")])])
        turns = asked.conversation.turns
        check_exact(turns, asked.sampler)
        rows = [Row(tuple(turn for turn in turns if turn.row == index)) for index in sorted(set(asked.rows))]
        assert sum(sum(row.loss_mask) for row in rows) == sum(len(said) for _, said in asked.sampler.calls)

    asyncio.run(play())


def _edited(rng: random.Random, history: list[dict[str, Any]], step: int) -> list[dict[str, Any]]:
    """The history as it is, or dropped, merged, reordered, re-serialised, compacted or branched."""
    kind = rng.choice(["keep", "keep", "keep", "drop", "swap", "rewrite", "compact", "branch", "serialise", "merge"])
    new = [dict(message) for message in history]
    if kind == "drop" and len(new) > 3:
        del new[rng.randrange(1, len(new) - 1)]
    elif kind == "swap" and len(new) > 4:
        place = rng.randrange(1, len(new) - 2)
        new[place], new[place + 1] = new[place + 1], new[place]
    elif kind == "rewrite":
        place = rng.randrange(len(new))
        new[place] = {**new[place], "content": f"{new[place].get('content')} edited {step}"}
    elif kind == "compact":
        new = [new[0], user(f"Summary {step}: much was said.")]
    elif kind == "branch":
        ends = [number for number, each in enumerate(new, 1) if each["role"] in ("user", "tool")]
        new = new[: rng.choice(ends)]
    elif kind == "serialise":
        for message in new:
            for call in message.get("tool_calls", ()):
                arguments = json.loads(call["function"]["arguments"])
                call["function"] = {**call["function"], "arguments": json.dumps(arguments, indent=rng.choice([0, 2]))}
    elif kind == "merge" and len(new) > 3 and new[-1]["role"] == "user" and new[-2]["role"] == "user":
        new[-2:] = [user(f"{new[-2]['content']}\n{new[-1]['content']}")]
    return new
