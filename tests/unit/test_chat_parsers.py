"""Reading calls out of model text: what all families have in common, and JSON."""
# ruff: noqa: RUF001 - the bars in DeepSeek's tokens look like others

from __future__ import annotations

import pytest
from effort import modest_effort
from hypothesis import given, settings
from hypothesis import strategies as st
from parser_texts import COMMON, SYNTAXES, Syntax, found, hostile, problems, thinking_tags, tool

from rlfactory_core.chat.families.gpt_oss import parse_harmony
from rlfactory_core.chat.families.hermes import parse_fallback
from rlfactory_core.chat.families.llama3 import parse_llama3, parse_llama4
from rlfactory_core.chat.families.mistral import parse_mistral
from rlfactory_core.chat.parsers.json_calls import MAX_DEPTH, parse_hermes
from rlfactory_core.chat.parsers.turn import MAX_CALLS, MAX_TAGS
from rlfactory_core.types import Message

every_syntax = pytest.mark.parametrize("syntax", SYNTAXES.values(), ids=SYNTAXES)


# --- what all have in common --------------------------------------------------------------------------------------


@every_syntax
def test_several_calls_in_order(syntax: Syntax) -> None:
    texts = ["plain", 'é "quoted"\n second line', "  ", "[1] {2}"]
    message = syntax.parse("".join(syntax.write(f"tool_{i}", text) for i, text in enumerate(texts)))
    assert found(message) == [(f"tool_{i}", {"text": text}) for i, text in enumerate(texts)]
    assert [call.id for call in message.tool_calls] == ["call_0", "call_1", "call_2", "call_3"]
    assert message.content == ""
    assert problems(message) == []


@every_syntax
def test_what_the_tools_get_are_plain_strings(syntax: Syntax) -> None:
    """The readers' own string type leaves out line counts."""
    call = syntax.parse(syntax.write("echo", "a\nb\nb")).tool_calls[0]
    assert call.arguments is not None
    for text in (call.name, call.arguments_text, call.arguments["text"]):
        assert type(text) is str


@every_syntax
def test_a_turn_of_text_is_content(syntax: Syntax) -> None:
    text = 'Paris (48°N). [1, 2] {"a": 1} and <b>bold</b>; 1 < 2 | 3.'
    assert syntax.parse(f"\n {text} \n") == Message("assistant", text)
    assert syntax.parse("") == Message("assistant", "")


@every_syntax
def test_a_call_cut_anywhere_is_no_call(syntax: Syntax) -> None:
    whole = syntax.write("echo", "some text")
    ends_with_json = syntax.parse in (parse_llama3, parse_llama4, parse_mistral, parse_harmony)
    for length in range(whole.rindex("}") if ends_with_json else len(whole)):
        message = syntax.parse(whole[:length])
        assert [call for call in message.tool_calls if call.error is None] == [], whole[:length]
        assert problems(message) == []


@every_syntax
def test_after_a_malformed_call_the_next_is_read(syntax: Syntax) -> None:
    head = syntax.call("bad", "@").split("@", 1)[0]
    good = syntax.write("echo", "x")
    for bad in (head, head + '{"x": [1, 2', head + "]]", head.replace("bad", "")):
        message = syntax.parse(bad + good)
        assert found(message) == [(message.tool_calls[0].name, None), ("echo", {"text": "x"})], bad
        error = message.tool_calls[0].error
        assert error is not None
        assert error.startswith("Invalid tool call: ")
        assert "NAME" in error  # the right form


@every_syntax
def test_at_most_so_many_calls_are_read(syntax: Syntax) -> None:
    calls = syntax.write("echo", "x") * (MAX_CALLS + 30)
    *read, rest = syntax.parse(calls).tool_calls
    assert [call.error for call in read] == [None] * MAX_CALLS
    assert rest.error is not None
    assert f"at most {MAX_CALLS} calls" in rest.error


@every_syntax
def test_json_nested_too_deeply_is_an_error(syntax: Syntax) -> None:
    def lists(depth: int) -> Message:
        return syntax.parse(syntax.call("echo", "[" * depth + "]" * depth))

    assert lists(MAX_DEPTH - 2).tool_calls[0].error is None
    for depth in (MAX_DEPTH + 1, 900, 5_000, 100_000):
        call = lists(depth).tool_calls[0]
        if syntax.quoted:
            assert call.error is not None
            assert "nested" in call.error
        else:
            assert call.arguments == {"text": "[" * depth + "]" * depth}  # bare text stays text


THINKING = [(name, syntax) for name, syntax in SYNTAXES.items() if name != "harmony"]


@pytest.mark.parametrize(("name", "syntax"), THINKING, ids=[name for name, _ in THINKING])
def test_calls_within_thinking_are_not_calls(name: str, syntax: Syntax) -> None:
    begin, end = thinking_tags(syntax)
    one, two = syntax.write("one", "x"), syntax.write("two", "y")
    assert syntax.parse(f"{begin}{one}{end}") == Message("assistant", "", reasoning=one)
    assert syntax.parse(f"{begin}{one}") == Message("assistant", "", reasoning=one)
    assert syntax.parse(f"{one}{end}").tool_calls == ()
    assert syntax.parse(one, thinking_open=True) == Message("assistant", "", reasoning=one)
    said = "b" if syntax.after_text else ""
    message = syntax.parse(f"{begin}a{end}{said} {two}{begin}{one}{end}", thinking_open=False)
    assert found(message) == [("two", {"text": "y"})]
    assert (message.content, message.reasoning) == (said, f"a\n{one}")
    message = syntax.parse(f"{one}{end}{said} {two}", thinking_open=True)
    assert (message.content, message.reasoning, found(message)) == (said, one, [("two", {"text": "y"})])


def test_tags_beyond_the_limit_are_content() -> None:
    text = "<think>a</think>" * (MAX_TAGS + 1) + SYNTAXES["hermes"].write("echo", "x")
    message = parse_hermes(text)
    assert message.tool_calls == ()
    assert message.content.startswith("<think>a</think><tool_call>")


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(SYNTAXES)).flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.lists(
                st.sampled_from([*COMMON, *SYNTAXES[name].pieces, SYNTAXES[name].write("echo", "x")])
                | st.text(max_size=3),
                max_size=40,
            ).map("".join),
        )
    ),
    st.booleans(),
)
def test_no_text_makes_parsing_raise(case: tuple[str, str], thinking_open: bool) -> None:
    name, text = case
    assert problems(SYNTAXES[name].parse(text, [tool(text={"type": "integer"})], thinking_open=thinking_open)) == []


@pytest.mark.slow
@every_syntax
def test_parsing_takes_linear_time(syntax: Syntax) -> None:
    for _, text in hostile(syntax, 400_000):
        with modest_effort():
            assert problems(syntax.parse(text)) == []


# --- JSON ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"name": "search", "arguments": {"query": }}', "not valid JSON (expecting value)"),
        ('{"name": "search", "arguments": {"x": NaN}}', "word that JSON does not have"),
        ('{"name": "search", "arguments": {"x": -1e999}}', "a number or word that JSON does not have"),
        ('{"name": "search", "arguments": {"x": ' + "9" * 5000 + "}}", "not valid JSON"),
        ("{'name': 'search', 'arguments': {}}", "not valid JSON (expecting property name"),
        ('{"name": "search" "arguments": {}}', "not valid JSON (expecting ',' delimiter)"),
        ('{"name" "search"}', "not valid JSON (expecting ':' delimiter)"),
        ('{"name": "search", "arguments": {},}', "not valid JSON (expecting property name"),
        ("[" * 100_000, "not valid JSON"),
        ('{"name": 1, "arguments": {}}', 'no "name" string'),
        ('{"name": "", "arguments": {}}', 'no "name" string'),
        ('{"name": "\\ud800", "arguments": {}}', 'no "name" string'),
        ('{"name": "' + "a" * 200 + '", "arguments": {}}', 'no "name" string'),
        ('{"arguments": {}}', 'no "name" string'),
        ("{}", 'no "name" string'),
        ('{"name": "search"}', 'no "arguments" object'),
        ('{"name": "search", "arguments": "query"}', "a JSON string, not an object"),
        ('{"name": "search", "arguments": null}', "a JSON null, not an object"),
        ("[1]", "a JSON array, not an object"),
        ('{"name": "search", "arguments": {}} and more', "text follows"),
        ('{"name": "search", "arguments": {}, ' + '"a": 1, ' * 20 + '"b": 1}', "more than 16 members"),
        ("", "not valid JSON"),
    ],
)
def test_a_malformed_json_call_says_what_is_wrong(body: str, reason: str) -> None:
    later = '<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call>'
    for parse in (parse_hermes, parse_fallback):
        message = parse(f"a\n<tool_call>\n{body}\n</tool_call>\n{later}\nb")
        bad, good = message.tool_calls
        assert bad.error is not None
        assert reason in bad.error
        assert bad.arguments_text == body
        assert bad.name in ("", "search")
        assert (good.name, good.arguments) == ("search", {"query": "x"})
        assert message.content == "a\n\n\nb"


def test_arguments_stand_as_they_were_written() -> None:
    body = '{ "x" : {"arguments": 0} , "arguments" : {"a" : [1,2] } , "name" : "f" }'
    (call,) = parse_hermes(f"<tool_call>{body}</tool_call>").tool_calls
    assert (call.name, call.arguments_text, call.arguments) == ("f", '{"a" : [1,2] }', {"a": [1, 2]})


def test_tags_within_strings_are_text() -> None:
    text = "</tool_call> <tool_call> <think> </think> <|call|> [TOOL_CALLS] </function> <｜tool▁call▁end｜> ```"
    for name, syntax in SYNTAXES.items():
        if syntax.quoted:
            assert found(syntax.parse(syntax.write("echo", text))) == [("echo", {"text": text})], name


@pytest.mark.parametrize("end", ["", "\n", "</tool_cal", "<tool_call>"])
def test_hermes_must_be_closed(end: str) -> None:
    first = parse_hermes('<tool_call>{"name": "a", "arguments": {}}' + end).tool_calls[0]
    assert first.error is not None
    assert "not closed by </tool_call>" in first.error
    assert first.name == "a"
