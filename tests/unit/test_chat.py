"""Choosing a chat format, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from chat_families import FAMILIES, formats
from chat_tokenizers import LLAMA, QWEN, make_tokenizer, published

from rlfactory_core.chat.families.qwen3 import QWEN3_TEMPLATE, Qwen3Format
from rlfactory_core.chat.hidden import unwritten
from rlfactory_core.chat.select import choose_format
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.rollout.transcript import naming
from rlfactory_core.types import Message, Sample, ToolSpec

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

SEARCH = ToolSpec("search", "Find <|im_end|> facts.", {"type": "object", "properties": {"query": {"type": "string"}}})


def test_a_format_is_chosen_by_template_or_name() -> None:
    assert choose_format(formats(), make_tokenizer()).name == "qwen3"
    assert choose_format(formats(), make_tokenizer(), name="hermes").name == "hermes"
    assert choose_format(formats(), make_tokenizer(published("llama3_1"), LLAMA)).name == "llama3"
    with pytest.raises(ChatFormatError, match=r"Did you mean 'qwen3'"):
        choose_format(formats(), make_tokenizer(), name="qwen")


def test_every_format_is_registered_under_its_own_name() -> None:
    names = {name: factory.load().name for name, factory in formats().items()}
    assert list(names) == list(names.values())
    assert {family.name for family in FAMILIES} <= set(names)


def test_the_general_format_comes_after_those_of_plugins() -> None:
    class Special:
        name = "special"

        def __init__(self, tokenizer: Any, thinking: bool) -> None: ...

        @staticmethod
        def matches(chat_template: str) -> bool:
            return "special" in chat_template

    known = {**formats(), "special": Special}
    assert choose_format(known, make_tokenizer("special {{ messages }}")).name == "special"
    assert choose_format(known, make_tokenizer(published("qwen2_5_vl"), QWEN)).name == "hermes"


def test_of_several_templates_that_for_tools_is_taken() -> None:
    several = transformers.PreTrainedTokenizerFast(
        tokenizer_object=make_tokenizer().backend_tokenizer,
        chat_template={"default": "{{ messages }}", "tool_use": QWEN3_TEMPLATE},
    )
    chat = choose_format(formats(), several)
    assert chat.name == "qwen3"
    chat.prove()


CHATML = """{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
TOOLS_ALONE = (  # as Hermes 2 and 3 have it: fails without tools, and for a tool whose argument has no type
    "{{ '<|im_start|>system\nTools:' }}{% for tool in tools %}{{ tool.function.name }}"
    "{% for name, fields in tool.function.parameters.properties|items %}{{ ' ' + name + ' ' + fields.type }}"
    "{% endfor %}{% endfor %}{{ '<|im_end|>\n' }}"
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}"
    "{% if message.tool_calls is defined %}{% for call in message.tool_calls %}{{ '<tool_call>\n' + "
    "call.function|tojson + '\n</tool_call>' }}{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}"
    "{% else %}{{ message.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def test_a_template_for_tools_alone_is_not_asked_without_tools() -> None:
    several = transformers.PreTrainedTokenizerFast(
        tokenizer_object=make_tokenizer().backend_tokenizer,
        chat_template={"default": CHATML, "tool_use": TOOLS_ALONE},
    )
    chat = choose_format(formats(), several)
    chat.prove()
    user = Message("user", "?")
    assert chat.decode(chat.initial_ids([user], [])) == "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n"
    text = chat.decode(chat.initial_ids([user], [SEARCH]))
    assert text.startswith("<|im_start|>system\nTools:search query string")
    odd = ToolSpec("odd", "An argument without a type.", {"type": "object", "properties": {"what": {}}})
    sample = Sample("row-7", "?", "")
    named = pytest.raises(ChatFormatError, match=r"sample 'row-7': .*does not take the tool 'odd': .*Give it")
    with named, naming(sample):
        chat.initial_ids(sample.messages, [SEARCH, odd])


def test_a_template_that_refuses_system_messages_gets_their_text_in_the_users() -> None:
    refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML
    leaves_out = CHATML.replace("in messages %}", "in messages if message.role != 'system' %}")
    for template in (refuses, leaves_out):
        chat = choose_format(formats(), make_tokenizer(template))
        chat.prove()
        system, user = Message("system", "Be brief."), Message("user", "Hi")
        said = [system, user, Message("assistant", "Yes?"), Message("system", "No.")]
        text = chat.decode(chat.initial_ids(said, []))
        assert text == (
            "<|im_start|>user\nBe brief.\n\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n"
            "<|im_start|>user\nNo.<|im_end|>\n<|im_start|>assistant\n"
        )
        assert not unwritten(chat, said, [])


def test_a_tokenizer_without_a_template_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        ChatFormatError, match=r"no chat template.*chat_template\.jinja.*Known formats: .*chat\.format="
    ):
        choose_format(formats(), make_tokenizer(None))
    with pytest.raises(ChatFormatError, match=r"'qwen3' needs a chat template, and \w+ has none\. Give"):
        choose_format(formats(), make_tokenizer(None), name="qwen3")


def test_a_template_that_no_format_knows_is_refused_with_the_remedy() -> None:
    with pytest.raises(ChatFormatError, match=r"begins '\{\{ messages.*Known formats: qwen3\. .*chat\.format="):
        choose_format({"qwen3": Qwen3Format}, make_tokenizer("{{ messages[0].content }}"))


def test_a_tokenizer_without_the_stop_token_is_refused() -> None:
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    bare = transformers.PreTrainedTokenizerFast(tokenizer_object=core, chat_template=QWEN3_TEMPLATE)
    with pytest.raises(ChatFormatError, match="im_end"):
        Qwen3Format(bare)


def test_a_slow_tokenizer_is_refused() -> None:
    class Slow:
        chat_template = QWEN3_TEMPLATE

    with pytest.raises(ChatFormatError, match=r"a fast .* tokenizer, and Slow has none"):
        choose_format(formats(), Slow())


def test_a_format_without_calls_of_its_own_refuses_a_template_without_calls() -> None:
    chat = choose_format(formats(), make_tokenizer(published("qwen2_5_vl"), QWEN), name="qwen3-coder")
    with pytest.raises(ChatFormatError, match=r"'qwen3-coder' needs .*chat\.format=hermes works with any"):
        chat.prove()
