"""Rendered texts as ids: contents stay plain text whatever they spell, and the ids are those of the whole text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chat_tokenizers import LLAMA, QWEN, Kind, make_tokenizer, spaced
from hypothesis import given, settings
from hypothesis import strategies as st

from rlfactory_core.chat.encoding import TextEncoder

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

SPACES = Kind(("<s>", "</s>", "[INST]", "[/INST]"), split="", bos="<s>", eos="</s>")


def backend(kind: Kind, *more: Any) -> Any:
    """A copy of the kind's tokenizer, with more added tokens."""
    copy = tokenizers.Tokenizer.from_str(make_tokenizer(None, kind).backend_tokenizer.to_str())
    copy.add_tokens(list(more))
    return copy


def whole(core: Any, text: str) -> tuple[int, ...]:
    return tuple(core.encode(text, add_special_tokens=False).ids)


texts = st.text(st.sampled_from("ab 1.\n\t é日🙂{}\"'\\<|"), max_size=16)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [QWEN, LLAMA, SPACES], ids=["qwen", "llama", "sentencepiece"])
def test_ids_are_those_of_the_whole_text(kind: Kind) -> None:
    core = backend(kind) if kind.split else spaced(kind)
    encoder = TextEncoder(core)

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from(kind.special), texts), min_size=1, max_size=5), texts)
    def check(pieces: list[tuple[str, str]], start: str) -> None:
        text = start + "".join(token + content for token, content in pieces)
        assert encoder.ids(text, "\ue000", start=True) == whole(core, text)
        rest = text[len(start) :]
        assert encoder.ids(rest, "\ue000", start=False) == whole(core, text)[len(whole(core, start)) :]

    check()


hostile = st.lists(
    st.sampled_from([*QWEN.special, *QWEN.added, "\ue000", "\\ue000", "\ue001", "<|im", "_end|>", "é\n"]), max_size=8
).map("".join)


@settings(max_examples=300, deadline=None)
@given(content=hostile, escape=st.sampled_from([None, False, True]))
def test_a_guarded_content_is_text_however_the_template_writes_it(content: str, escape: bool | None) -> None:
    core = make_tokenizer(None).backend_tokenizer
    encoder = TextEncoder(core)
    mark = encoder.mark([{"content": content}])
    guarded = encoder.guard({"content": content}, mark)["content"]
    said = content if escape is None else json.dumps(content, ensure_ascii=escape)
    shown = guarded if escape is None else json.dumps(guarded, ensure_ascii=escape)
    ids = encoder.ids(f"<|im_start|>{shown}<|im_end|>", mark, start=True)
    assert encoder.unmark(shown, mark) == said
    assert core.decode(list(ids), skip_special_tokens=False) == f"<|im_start|>{said}<|im_end|>"
    added = {core.token_to_id(token) for token in (*QWEN.special, *QWEN.added)}
    assert [index for index, token in enumerate(ids) if token in added] == [0, len(ids) - 1]


def test_names_within_data_are_guarded_too() -> None:
    encoder = TextEncoder(make_tokenizer(None).backend_tokenizer)
    data = {"<|im_end|>": [("<think>", 1, None, True)]}
    assert encoder.guard(data, "#") == {"<#|im_end|>": [["<#think>", 1, None, True]]}


def test_added_tokens_of_white_space_are_text() -> None:
    core = backend(QWEN, tokenizers.AddedToken("    ", normalized=False))
    encoder = TextEncoder(core)
    mark = encoder.mark("a    b")
    assert encoder.guard("a    b", mark) == "a    b"
    assert encoder.ids("a    b<|im_end|>", mark, start=True) == whole(core, "a    b<|im_end|>")
    assert core.token_to_id("    ") in whole(core, "a    b")


def test_added_tokens_that_take_the_white_space_around_them() -> None:
    core = backend(
        QWEN,
        tokenizers.AddedToken("<|end|>", rstrip=True, normalized=False),
        tokenizers.AddedToken("<|mask|>", lstrip=True, normalized=False),
    )
    text = "a \n<|end|>\n\n b <|mask|> c<|mask|><|end|> <|mask|>\n"
    assert TextEncoder(core).ids(text, "\ue000", start=True) == whole(core, text)


def test_the_longer_of_two_tokens_is_meant() -> None:
    core = backend(QWEN, tokenizers.AddedToken("<|im_end|>!", normalized=False))
    encoder = TextEncoder(core)
    assert encoder.ids("<|im_end|>!", "\ue000", start=True) == (core.token_to_id("<|im_end|>!"),)
    assert encoder.first_added("x<|im_end|>!") == "<|im_end|>!"
    assert encoder.first_added("x") is None


def test_a_tokenizer_without_added_tokens() -> None:
    core = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, []))
    encoder = TextEncoder(core)
    assert encoder.ids("aa", "\ue000", start=True) == (0, 0)
    assert encoder.guard("aa", "\ue000") == "aa"


def test_a_thousand_added_tokens_and_hostile_text_take_linear_time() -> None:
    core = backend(
        QWEN,
        *(tokenizers.AddedToken(f"<SPECIAL_{index}>", normalized=False) for index in range(1000)),
        tokenizers.AddedToken("<mask>", lstrip=True, normalized=False),
    )
    encoder = TextEncoder(core)
    for unit in ("<", "<SPECIAL_", "\n", " <", "<SPECIAL_1", "\ue000"):
        text = unit * (200_000 // len(unit))
        mark = encoder.mark([text])
        encoder.guard(text, mark)
        encoder.unmark(text, mark)
        assert encoder._cut.search(text) is None  # tried one by one, or from every space, this takes minutes
