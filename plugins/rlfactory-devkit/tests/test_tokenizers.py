"""Tiny tokenizers for every chat format: whose they are, that their templates write as the published ones do."""

from __future__ import annotations

import sys

import pytest
from chat_families import SEARCH, call, formats, make_format
from hypothesis import given, settings
from hypothesis import strategies as st
from rlfactory_devkit import families, tiny_tokenizer

from rlfactory_core import Message, ToolSpec
from rlfactory_core.chat import choose_format
from rlfactory_core.errors import MissingExtraError, UsageError

PUBLISHED = {
    "qwen3": "qwen3_instruct_2507",
    "qwen2.5": "qwen2_5",
    "llama3": "llama3_1",
    "glm-4.5": "glm4moe",
    "gpt-oss": "gptoss",
}
ONE_CALL = ("llama3", "gpt-oss")  # in a turn; the one refuses more, the other shows the first
BESIDE = ("qwen3", "qwen2.5", "glm-4.5")  # what is said beside a call is written as such
ORDER = ToolSpec(
    "order",
    "Order <|im_end|> things.",
    {
        "type": "object",
        "properties": {
            "what": {"type": "string", "enum": ["tea", "milk"], "default": "tea", "description": "Of „two“."},
            "times": {"type": "array", "items": {"type": "integer"}},
            "names": {"type": "array", "items": {"type": "string"}, "description": "Whose."},
            "share": {"type": "number", "default": 0.5},
            "fast": {"type": "boolean"},
        },
        "required": ["times", "fast"],
    },
)
NOTHING = ToolSpec("nothing", "Take no arguments.", {"type": "object", "properties": {}})
texts = st.text(st.sampled_from("ab 1.\n\r\t é日🙂{}\"'<>|"), max_size=12)
thoughts = st.sampled_from(["", "hm", " Let me\n\nsee. "])


@st.composite
def conversations(draw: st.DrawFn, family: str) -> list[Message]:
    messages = [Message("system", draw(texts))] if draw(st.booleans()) else []
    messages.append(Message("user", draw(texts)))
    for _ in range(draw(st.integers(0, 3))):
        queries = draw(st.lists(texts, min_size=1, max_size=1 if family in ONE_CALL else 3))
        calls = tuple(call(index, "search", query=query, top=index) for index, query in enumerate(queries))
        said = draw(texts) if family in BESIDE else ""
        messages.append(Message("assistant", said, reasoning=draw(thoughts), tool_calls=calls))
        messages += [Message("tool", draw(texts), name="search") for _ in queries]
        if draw(st.booleans()):
            messages.append(Message("user", draw(texts)))
    messages.append(Message("assistant", draw(texts), reasoning=draw(thoughts)))
    return messages[: len(messages) - draw(st.integers(0, 1))]


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("family", PUBLISHED)
def test_a_template_writes_what_the_published_one_does(family: str, thinking: bool) -> None:
    ours, theirs = make_format(f"own_{family}", thinking), make_format(PUBLISHED[family], thinking)

    @settings(max_examples=60, deadline=None)
    @given(conversations(family), st.lists(st.sampled_from([SEARCH, ORDER, NOTHING]), max_size=3), st.booleans())
    def check(messages: list[Message], tools: list[ToolSpec], prompt: bool) -> None:
        left = ours.render(messages, tools, generation_prompt=prompt)
        assert left == theirs.render(messages, tools, generation_prompt=prompt)

    check()
    assert ours.abilities == theirs.abilities
    assert ours.stop_token_ids == theirs.stop_token_ids


@pytest.mark.parametrize("family", families())
def test_a_tiny_tokenizer_is_its_familys(family: str) -> None:
    tokenizer = tiny_tokenizer(family)
    chat = choose_format(formats(), tokenizer)
    assert chat.name == family
    chat.prove()
    assert len(tokenizer) < 1000
    text = "Any text: „日本“ 🙂\r\n\t<answer>Ann  Lee</answer>"
    assert chat.decode(chat.encode(text)) == text


def test_every_chat_format_has_a_tiny_tokenizer() -> None:
    assert set(families()) == set(formats())


def test_it_learns_the_given_texts() -> None:
    words = "fjordic quizzical"
    assert len(tiny_tokenizer(texts=[words] * 50).encode(words)) < len(tiny_tokenizer().encode(words))


def test_two_are_alike_and_apart() -> None:
    first, second = tiny_tokenizer("llama3"), tiny_tokenizer("llama3")
    assert first.get_vocab() == second.get_vocab()
    first.add_tokens(["<more>"])
    assert first.get_vocab() != second.get_vocab()


def test_an_unknown_family_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"family 'qwen'\. Did you mean 'qwen3'"):
        tiny_tokenizer("qwen")


@pytest.mark.parametrize("package", ["transformers", "tokenizers"])
def test_a_missing_package_gives_the_command(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"python -m pip install 'rlfactory-core\[local\]'"):
        tiny_tokenizer()
