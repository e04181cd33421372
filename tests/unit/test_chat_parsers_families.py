"""Call syntaxes, family by family: what is a call, what is an error, what is neither."""
# ruff: noqa: RUF001 - the bars in DeepSeek's tokens look like others

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from parser_texts import found, tool

from rlfactory_core.chat.families.deepseek import parse_deepseek
from rlfactory_core.chat.families.glm import parse_glm
from rlfactory_core.chat.families.gpt_oss import parse_harmony
from rlfactory_core.chat.families.hermes import parse_fallback
from rlfactory_core.chat.families.kimi import parse_kimi
from rlfactory_core.chat.families.llama3 import parse_llama3
from rlfactory_core.chat.families.mistral import parse_mistral
from rlfactory_core.chat.families.xml_calls import parse_dsml, parse_minimax, parse_seed_oss
from rlfactory_core.chat.parsers.json_calls import typed
from rlfactory_core.chat.parsers.tagged import parse_qwen3_coder
from rlfactory_core.types import Message

# --- XML ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parse", [parse_qwen3_coder, parse_glm])
def test_values_have_the_types_of_the_schema(parse: Callable[..., Message]) -> None:
    values = {"n": "3", "code": "3", "flag": "true", "rows": '[{"a": null}]', "note": "", "other": "2.5"}
    if parse is parse_glm:
        pairs = "".join(f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in values.items())
        text = f"<tool_call>f{pairs}</tool_call>"
    else:
        pairs = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
        text = f"<tool_call>\n<function=f>\n{pairs}</function>\n</tool_call>"
    spec = tool(
        n={"type": "integer"},
        code={"type": "string"},
        flag={"type": "boolean"},
        rows={"type": "array"},
        note={"type": "string"},
    )
    expected = {"n": 3, "code": "3", "flag": True, "rows": [{"a": None}], "note": "", "other": 2.5}
    message = parse(text, [spec])
    assert found(message) == [("f", expected)]
    assert message.tool_calls[0].arguments_text == pairs.strip()


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, " 5 ", " 5 "),
        ({"type": "string"}, "null", "null"),
        ({"type": "integer"}, " 5\n", 5),
        ({"type": "integer"}, "five", "five"),  # validation says which type was wanted
        ({"type": "integer"}, "5.5", 5.5),
        ({"type": "integer"}, '"5"', '"5"'),
        ({"type": "integer"}, "5 6", "5 6"),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "false", False),
        ({"type": "boolean"}, "1", "1"),
        ({"type": "null"}, "None", None),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "object"}, "{'a': 1}", "{'a': 1}"),
        ({"type": "array"}, '[{\\"a\\": 1}]', '[{\\"a\\": 1}]'),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "5", "5"),
        ({"anyOf": [{"type": "string"}, {"type": "object"}]}, '{"a": 1}', {"a": 1}),
        ({"anyOf": [{"type": "string"}, {"type": "object"}]}, "nested data", "nested data"),
        ({"anyOf": [{"type": "string"}, {"type": "object"}]}, "5", "5"),
        ({"oneOf": [{"type": "string"}, {"type": "number"}]}, "5", 5),
        ({"anyOf": [{"$ref": "#/$defs/x"}, {"type": "null"}]}, "5", 5),
        ({"allOf": [{"description": "x"}, {"type": "string"}]}, "5", "5"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"const": "7"}, "7", "7"),
        ({"type": "int"}, "5", 5),
        ({"type": "float"}, "0.5", 0.5),
        ({"type": "str"}, "5", "5"),
        ({"type": "bool"}, "true", True),
        ({"type": "list"}, "[1]", [1]),
        ({"type": ["dict", "null"]}, '{"a": 1}', {"a": 1}),
        ({}, "5", 5),
        ({}, "Paris", "Paris"),
        (True, "[1]", [1]),
    ],
)
def test_typed(schema: Any, text: str, value: Any) -> None:
    result = typed(text, tool(x=schema), "x")
    assert (result, type(result)) == (value, type(value))


def test_typed_without_a_schema() -> None:
    assert [typed(text, None, "x") for text in ("5", "Paris", "True", "")] == [5, "Paris", True, ""]
    assert typed("[1]", tool(x={"type": "string"}), "y") == [1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call>\n</tool_call>", "<function=NAME> does not follow"),
        ('<tool_call>{"name": "f", "arguments": {}}</tool_call>', "<function=NAME> does not follow"),
        ("<tool_call><function=></function></tool_call>", "no name follows"),
        ("<tool_call><function=f><parameter=a>1<parameter=b>2</parameter></function></tool_call>", "'a' is not closed"),
        ("<tool_call><function=f><parameter=a>1</function></tool_call>", "'a' is not closed"),
        ("<tool_call><function=f>{}</function></tool_call>", "neither <parameter=KEY> nor </function> follows"),
        ("<tool_call><function=f></function> so</tool_call>", "text follows the call's function"),
        ("<tool_call><function=f></function>", "not closed by </tool_call>"),
        ("<function=f></function>", "stands outside of <tool_call>"),
    ],
)
def test_qwen3_coder_is_strict(text: str, reason: str) -> None:
    (call,) = parse_qwen3_coder(text).tool_calls
    assert call.error is not None
    assert reason in call.error


def test_qwen3_coder_values_keep_their_own_line_breaks() -> None:
    text = "<tool_call>\n<function=f>\n<parameter=a>\n\n x <tool_call> \n\n</parameter>\n<parameter=b>\n</parameter>\n"
    message = parse_qwen3_coder(text + "</function>\n</tool_call>", [tool(a={"type": "string"}, b={"type": "string"})])
    assert found(message) == [("f", {"a": "\n x <tool_call> \n", "b": ""})]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call>\n</tool_call>", "no function name follows"),
        ("<tool_call>f g<arg_key>a</tool_call>", "neither <arg_key>KEY"),
        ("<tool_call>f<arg_key>a</arg_key></tool_call>", "neither <arg_key>KEY"),
        ("<tool_call>f<arg_key>a</arg_key><arg_value>1<arg_key>b</arg_key></tool_call>", "'a' is not closed"),
        ("<tool_call>f", "not closed by </tool_call>"),
    ],
)
def test_glm_is_strict(text: str, reason: str) -> None:
    (call,) = parse_glm(text).tool_calls
    assert call.error is not None
    assert reason in call.error


# --- the others ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        ('{"name": "f", "parameters": {"a": 1}}', [("f", {"a": 1})], ""),
        (
            '\n{"type": "function", "name": "f", "parameters": {}}\n{"name": "g", "arguments": {}} done',
            [("f", {}), ("g", {})],
            "done",
        ),
        ('{"name": "Ann", "age": 3}', [], '{"name": "Ann", "age": 3}'),  # an answer in JSON
        ('Say {"name": "f", "parameters": {}}', [], 'Say {"name": "f", "parameters": {}}'),
        ('Say <|python_tag|>{"name": "f", "parameters": {}}', [("f", {})], "Say"),
        ('{"name": "f", "parameters": {"a": 1}', [("f", None)], ""),
        ('{"name": "f", "parameters": [1]}', [("f", None)], ""),
        ('<|python_tag|>search.call(query="x")', [("", None)], ""),
        ('<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {', [("f", {}), ("g", None)], ""),
        ('<function=f>{"a": 1}', [("f", None)], ""),
        ('<think>so</think>{"name": "f", "parameters": {}}', [("f", {})], ""),
    ],
)
def test_llama3(text: str, calls: list[Any], content: str) -> None:
    message = parse_llama3(text)
    assert (found(message), message.content) == (calls, content)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (
            '[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "123456789"}, {"name": "g", "arguments": {}}]',
            [("f", {}), ("g", {})],
        ),
        ('[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}', [("f", {"a": 1}), ("g", {})]),
        ('[TOOL_CALLS] [{"name": "f", "arguments": {}}', [("f", None)]),  # a list that is not closed holds no calls
        ('[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"name": 1}]', [("f", None)]),
        ("[TOOL_CALLS] []", [("", None)]),
        ("[TOOL_CALLS]f[ARGS][1]", [("f", None)]),
        ("[TOOL_CALLS][ARGS]{}", [("", None)]),
    ],
)
def test_mistral(text: str, calls: list[Any]) -> None:
    assert found(parse_mistral(text)) == calls


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ('function<｜tool▁sep｜>f\n```json\n{"a": 1}\n```', ("f", {"a": 1})),
        ('f<｜tool▁sep｜>{"a": 1}', ("f", {"a": 1})),  # V3.1
        ('code<｜tool▁sep｜>f\n```json\n{"a": 1}\n```', ("code", None)),
        ('function<｜tool▁sep｜>f\n```json\n{"a": 1}', ("f", None)),
        ("function<｜tool▁sep｜>f\n```json\n[1]\n```", ("f", None)),
        ("f", ("", None)),
    ],
)
def test_deepseek(body: str, call: Any) -> None:
    text = f"Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{body}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    message = parse_deepseek(text)
    assert (found(message), message.content) == ([call], "Hm.")
    if call[1] is not None:
        assert found(parse_deepseek(text.split("<｜tool▁call▁end｜>", 1)[0])) == [(call[0], None)]


TO = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"


@pytest.mark.parametrize(
    ("text", "calls", "content", "reasoning"),
    [
        (f"<|channel|>analysis<|message|>hm<|end|><|start|>assistant{TO}{{}}<|call|>", [("f", {})], "", "hm"),
        (f'{TO}{{"a": "<|end|>"}}', [("f", {"a": "<|end|>"})], "", ""),  # the stop token may be cut
        (f'{TO}{{"a": 1', [("f", None)], "", ""),
        (f"{TO}{{}} so<|call|>", [("f", None)], "", ""),
        (" to=functions.f<|channel|>commentary json<|message|>{}<|call|>", [("f", {})], "", ""),
        ("<|channel|>commentary to=functions.f", [("f", None)], "", ""),
        ("<|channel|>analysis to=python code<|message|>1+1<|call|>", [("python", None)], "", ""),
        (
            "<|channel|>commentary<|message|>First.<|end|><|start|>assistant<|channel|>final<|message|>It.<|return|>",
            [],
            "First.\nIt.",
            "",
        ),
        ("<|channel|>analysis<|message|>a<|end|><|channel|>analysis<|message|>b<|end|>", [], "", "a\nb"),
        ("<|channel|>final<|message|>cut", [], "cut", ""),
        ("<|channel|>fin", [], "", ""),
        ("no channel", [], "no channel", ""),
        (
            f"{TO}{{}}<|call|><|start|>functions.f to=assistant<|channel|>commentary<|message|>made up<|end|>",
            [("f", {})],
            "",
            "",
        ),
    ],
)
def test_harmony(text: str, calls: list[Any], content: str, reasoning: str) -> None:
    message = parse_harmony(text)
    assert (found(message), message.content, message.reasoning) == (calls, content, reasoning)


def test_harmony_goes_on_where_the_prompt_began_to_think() -> None:
    message = parse_harmony(f"hm {TO}<|end|><|start|>assistant{TO}{{}}<|call|>", thinking_open=True)
    assert message.reasoning == "hm"
    assert [call.error is None for call in message.tool_calls] == [False, True]
    assert parse_harmony("hm", thinking_open=True) == Message("assistant", "", reasoning="hm")


@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        ('I call [Calling tool: f({"a": ")]"})] now', [("f", {"a": ")]"})], "I call  now"),
        ('[Calling tool: f({"a": 1}', [("f", None)], ""),
        ("[Calling tool: f(a=1)]", [("f", None)], ""),
        ("[Calling tool: ]", [("", None)], ""),
        (
            '<function=f>{"a": 1}</function><function=g><parameter=a>x</parameter></function>',
            [("f", {"a": 1}), ("g", {"a": "x"})],
            "",
        ),
        ("<tool_call><function=f></function></tool_call>", [("f", {})], ""),
        ("Use <function=f> here", [("f", None)], "Use"),
    ],
)
def test_fallback(text: str, calls: list[Any], content: str) -> None:
    message = parse_fallback(text)
    assert (found(message), message.content) == (calls, content)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>', ("f", {"a": 1})),
        ("functions.a.b:12 <|tool_call_argument_begin|> {} <|tool_call_end|>", ("a.b", {})),
        ("f<|tool_call_argument_begin|>{}<|tool_call_end|>", ("f", {})),
        ("functions.:0<|tool_call_argument_begin|>{}<|tool_call_end|>", ("", None)),
        ("functions.f:0{}<|tool_call_end|>", ("", None)),
        ("functions.f:0<|tool_call_argument_begin|>[]<|tool_call_end|>", ("f", None)),
        ("functions.f:0<|tool_call_argument_begin|>{} so<|tool_call_end|>", ("f", None)),
        ("functions.f:0<|tool_call_argument_begin|>{}", ("f", None)),
    ],
)
def test_kimi(call: str, expected: Any) -> None:
    message = parse_kimi(f"Hm.<|tool_calls_section_begin|><|tool_call_begin|>{call}<|tool_calls_section_end|>")
    assert (found(message), message.content) == ([expected], "Hm.")


# --- blocks of calls with named parameters --------------------------------------------------------------------------


def test_minimax_types_come_from_the_schema() -> None:
    block = '<invoke name="f"><parameter name="n">3</parameter>\n<parameter name="s">3\n</parameter></invoke>'
    text = f'So.\n<minimax:tool_call>\n{block}\n<invoke name="g"></invoke>\n</minimax:tool_call>'
    message = parse_minimax(text, [tool(n={"type": "int"}, s={"type": "string"})])
    assert (found(message), message.content) == ([("f", {"n": 3, "s": "3\n"}), ("g", {})], "So.")


@pytest.mark.parametrize("tag", ["function_calls", "tool_calls"])
def test_dsml_says_what_is_a_string(tag: str) -> None:
    rows = {"a": ("true", "5"), "b": ("false", "5"), "c": ("false", '{"k": [null]}'), "d": ("true", " x\n")}
    body = "".join(
        f'<｜DSML｜parameter name="{key}" string="{string}">{text}</｜DSML｜parameter>\n'
        for key, (string, text) in rows.items()
    )
    text = f'<｜DSML｜{tag}>\n<｜DSML｜invoke name="f">\n{body}</｜DSML｜invoke>\n</｜DSML｜{tag}>'
    assert found(parse_dsml(text)) == [("f", {"a": "5", "b": 5, "c": {"k": [None]}, "d": " x\n"})]


@pytest.mark.parametrize(
    ("body", "name", "reason"),
    [
        ("", "", "no call with a name begins"),
        ('<invoke name="">', "", "no call with a name begins"),
        ("<invoke name='f'></invoke>", "", "no call with a name begins"),
        ('<invoke name="f">so</invoke>', "f", "neither a parameter nor </invoke> follows"),
        ('<invoke name="f"><parameter name="a">1</invoke>', "f", "'a' is not closed"),
        (
            '<invoke name="f"><parameter name="a" string="false">x</parameter></invoke>',
            "f",
            "'a' is not right: the call is not valid JSON",
        ),
        ('<invoke name="f"><parameter name="a" string="false">1 2</parameter></invoke>', "f", "text follows the JSON"),
        ('<invoke name="f"></invoke> and', "", "no call with a name begins"),
        ('<invoke name="f"></invoke><invoke name="g">', "g", "neither a parameter"),
    ],
)
def test_blocks_of_calls_are_strict(body: str, name: str, reason: str) -> None:
    whole = f"<minimax:tool_call>{body}</minimax:tool_call>"
    marked = re.sub(r"(</?)(invoke|parameter)", r"\1｜DSML｜\2", whole)
    marked = marked.replace("minimax:tool_call", "｜DSML｜tool_calls")
    for message in (parse_minimax(f"{whole} b"), parse_dsml(f"{marked} b")):
        (call,) = message.tool_calls
        assert (call.name, call.arguments, message.content) == (name, None, "b")
        assert call.error is not None
        assert reason in call.error.replace("｜DSML｜", "")
    assert found(parse_minimax(whole.removesuffix("</minimax:tool_call>")))[0][1] is None


def test_seed_oss() -> None:
    call = "<seed:tool_call>\n<function=f>\n<parameter=n>3</parameter>\n</function>\n</seed:tool_call>"
    message = parse_seed_oss(f"<seed:think>{call}</seed:think>So. {call}", [tool(n={"type": "integer"})])
    assert (found(message), message.content, message.reasoning) == ([("f", {"n": 3})], "So.", call)
    for bad in (call.removesuffix("</seed:tool_call>"), call.replace("<function=f>", ""), call.replace("=n>", "=n")):
        assert [arguments for _, arguments in found(parse_seed_oss(bad))] == [None]
