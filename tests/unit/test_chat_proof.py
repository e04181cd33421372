"""The start-up proof fails where a template does what its format does not expect, and says where."""

from __future__ import annotations

from typing import Any

import pytest
from chat_families import FAMILIES, Family, formats, template
from chat_tokenizers import QWEN, Kind, make_tokenizer, published

from rlfactory_core.chat.families.qwen3 import QWEN3_TEMPLATE, Qwen3Format
from rlfactory_core.chat.select import choose_format
from rlfactory_core.errors import ChatFormatError

pytest.importorskip("transformers")

# Put before any template, each makes it rewrite the past in a way that no format's docstring speaks of.
FORGETS_RESULTS = """\
{%- set ns = namespace(kept=[]) -%}
{%- for m in messages -%}
    {%- if m.role != 'tool' or loop.index0 + 3 > messages | length -%}{%- set ns.kept = ns.kept + [m] -%}
    {%- else -%}{%- set ns.kept = ns.kept + [dict(m, content='(left out)')] -%}{%- endif -%}
{%- endfor -%}
{%- set messages = ns.kept -%}
"""
SHORTENS_QUESTIONS = """\
{%- set ns = namespace(kept=[]) -%}
{%- for m in messages -%}
    {%- if m.role == 'user' and loop.index0 + 2 < messages | length -%}
        {%- set ns.kept = ns.kept + [dict(m, content=m.content[:2])] -%}
    {%- else -%}{%- set ns.kept = ns.kept + [m] -%}{%- endif -%}
{%- endfor -%}
{%- set messages = ns.kept -%}
"""
SHORTENS_ANSWERS = SHORTENS_QUESTIONS.replace("'user' and", "'assistant' and not m.tool_calls and")


@pytest.mark.parametrize("rewriting", [FORGETS_RESULTS, SHORTENS_QUESTIONS, SHORTENS_ANSWERS])
@pytest.mark.parametrize("templates", [slice(1), pytest.param(slice(1, None), marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_template_that_rewrites_more_than_is_documented_is_refused(
    family: Family, templates: slice, rewriting: str
) -> None:
    for name in family.templates[templates]:
        changed = choose_format(formats(), make_tokenizer(rewriting + template(name), family.kind))
        assert changed.name == family.name
        if rewriting == FORGETS_RESULTS and not changed.abilities.results:
            continue  # results come as a user's words
        with pytest.raises(ChatFormatError, match=r"token \d+ of the appended conversation is"):
            changed.prove()


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("qwen3", "loop.index0 > ns.last_query_index", "loop.last"),  # also drops the thinking of the turns in between
        ("qwen3_5_think", "loop.index0 > ns.last_query_index", "loop.last"),
        ("glm4moe", "loop.index0 > ns.last_user_index", "loop.last"),
        ("gptoss", "not future_final_message.found", "loop.last"),
        (
            "llama3_1",
            '"<|start_header_id|>ipython<|end_header_id|>',
            '"#" * loop.index + "<|start_header_id|>ipython<|end_header_id|>',
        ),
        ("own_mistral", "'[TOOL_RESULTS]'", "'[TOOL_RESULTS]' + (loop.revindex | string)"),
    ],
)
def test_a_change_within_a_template_is_noticed(name: str, before: str, after: str) -> None:
    source = template(name)
    assert before in source
    kind = next(family.kind for family in FAMILIES if name in family.templates)
    changed = choose_format(formats(), make_tokenizer(source.replace(before, after), kind))
    with pytest.raises(ChatFormatError, match=r"token \d+ of the appended conversation is"):
        changed.prove()


def test_the_first_differing_token_is_named_with_the_text_around_it() -> None:
    chat = Qwen3Format(make_tokenizer(FORGETS_RESULTS + QWEN3_TEMPLATE))
    with pytest.raises(ChatFormatError) as caught:
        chat.prove()
    message = " ".join(str(caught.value).split())
    assert "Chat format 'qwen3' does not fit this tokenizer: token" in message
    assert "(left" in message.partition("expected: ")[2]
    assert "chat.format=NAME" in message


def test_a_template_that_trims_contents_is_followed() -> None:
    source = QWEN3_TEMPLATE.replace("+ content + '\\n</tool_response>'", "+ content | trim + '\\n</tool_response>'")
    assert source != QWEN3_TEMPLATE
    Qwen3Format(make_tokenizer(source)).prove()


def test_a_format_that_lets_contents_write_special_tokens_is_refused() -> None:
    class Careless(Qwen3Format):
        def __init__(self, tokenizer: Any) -> None:
            super().__init__(tokenizer)
            self._encoder.guard = lambda content, mark: content  # type: ignore[method-assign]

    with pytest.raises(ChatFormatError, match=r"turns '<\|im_end\|>' within a message or a tool's output"):
        Careless(make_tokenizer()).prove()


def test_a_stop_token_that_any_text_may_hold_is_refused() -> None:
    kind = Kind(("<|im_start|>", "<|im_end|>", "$"), eos="$")
    source = QWEN3_TEMPLATE.replace("<|im_end|>", "$")
    with pytest.raises(ChatFormatError, match=r"turns '\$' within"):
        choose_format(formats(), make_tokenizer(source, kind), name="hermes").prove()


def test_calls_that_the_format_does_not_read_are_refused() -> None:
    tokenizer = make_tokenizer(published("lfm2_2_5"), QWEN)
    with pytest.raises(ChatFormatError, match=r"'hermes' does not read the tool calls .*search\(query='Ωmega'\)"):
        choose_format(formats(), tokenizer, name="hermes").prove()


def test_a_template_that_refuses_a_conversation_is_told_with_its_own_words() -> None:
    refusing = "{%- if messages | length > 4 -%}{{ raise_exception('Too long!') }}{%- endif -%}"
    chat = Qwen3Format(make_tokenizer(refusing + QWEN3_TEMPLATE))
    with pytest.raises(ChatFormatError, match=r"does not take this conversation \(roles: .*Too long!"):
        chat.prove()
