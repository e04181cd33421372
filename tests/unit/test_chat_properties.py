"""Random conversations with every family: what is appended is what the template writes, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from chat_families import FAMILIES, SEARCH, Family, call, make_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlfactory_core.chat.proof import appended, prove_append_equals_render, prove_text
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolSpec

pytest.importorskip("transformers")

texts = st.text(st.sampled_from("ab 1.\n\r\t é日🙂{}\"'<>|\\/"), max_size=12)
words = st.text(st.sampled_from("abc é.\n{"), min_size=1, max_size=8).map(str.strip).filter(bool)


@st.composite
def conversations(draw: st.DrawFn, chat: TemplateFormat, control: Sequence[str]) -> tuple[Message, ...]:
    """What the template takes; the contents that others write may spell control tokens."""
    hostile = texts | st.tuples(texts, st.sampled_from(control), texts).map(lambda parts: "x" + "".join(parts))

    def said(content: str, *, after_results: bool = False, calls: int = 0) -> Message:
        unopened = chat.opens_thinking and not chat.thinking_open and after_results
        may = chat.thinking and not unopened
        reasoning = draw(words if chat.opens_thinking else words | st.just("")) if may else ""
        queries = [draw(texts) for _ in range(calls)]
        made = tuple(call(index, "search", query=query, top=index) for index, query in enumerate(queries))
        return Message("assistant", content, reasoning=reasoning, tool_calls=made)

    messages = [Message("system", draw(hostile))] if chat.abilities.system and draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 2))):
        messages.append(Message("user", draw(hostile)))
        for round_ in range(draw(st.integers(0, 3))):
            calls = draw(st.integers(1, 1 if chat.abilities.calls == 1 else 3))
            messages.append(said(draw(words | st.just("")), after_results=round_ > 0, calls=calls))
            messages += [
                Message("tool", draw(hostile), name="search", tool_call_id=f"call_{index}") for index in range(calls)
            ]
        messages.append(said(draw(words), after_results=messages[-1].role == "tool"))
    return tuple(messages[: -1 if draw(st.booleans()) else None])


@pytest.mark.parametrize("examples", [8, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_append_equals_render(family: Family, examples: int) -> None:
    tokens = (*family.kind.special, *family.kind.added)

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data(), name=st.sampled_from(family.templates), thinking=st.booleans(), tools=st.booleans())
    def check(data: st.DataObject, name: str, thinking: bool, tools: bool) -> None:
        chat = make_format(name, thinking)
        messages = data.draw(conversations(chat, tokens))
        told = replace(SEARCH, description=data.draw(texts | st.sampled_from(tokens))) if tools else None
        agrees(chat, messages, (told,) if told else (), tokens)

    check()


def agrees(
    chat: TemplateFormat, messages: Sequence[Message], tools: Sequence[ToolSpec], control: Sequence[str]
) -> None:
    """Where no content spells a control token all ids are the tokenizer's, elsewhere the same tokens control."""
    spoken = [message.content for message in messages if message.role != "assistant"]
    spoken += [tool.description for tool in tools]
    if not any(token in text for token in control for text in spoken):
        prove_append_equals_render(chat, [messages], tools)
        return
    harmless = [m if m.role == "assistant" else replace(m, content=_harmless(m.content, control)) for m in messages]
    described = [replace(tool, description=_harmless(tool.description, control)) for tool in tools]
    if chat.keeps(messages):
        prove_text(chat, messages, tools)
    else:  # what the template did to the past is found by its tokens, which contents would blur
        prove_append_equals_render(chat, [harmless], described)
    found, quiet = appended(chat, messages, tools), appended(chat, harmless, described)
    assert chat.decode(found.ids) == found.text
    assert _harmless(found.text, control) == _harmless(quiet.text, control)
    ids = {chat.encode(token)[0] for token in control}
    assert [i for i in found.ids if i in ids] == [i for i in quiet.ids if i in ids]


def _harmless(text: str, control: Sequence[str]) -> str:
    for token in control:
        text = text.replace(token, "y")
    return text
