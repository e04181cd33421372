"""Cases of other projects' parser tests, shortened, and where our parsers differ from theirs on purpose.

The sources: vLLM 0.33.0 (``tests/tool_parsers``, ``tests/parser/engine``), llama.cpp (``tests/test-chat.cpp``), and for
DeepSeek's second form what SGLang 0.5.23's parser documents.
"""
# ruff: noqa: RUF001 - the bars in DeepSeek's tokens look like others

from __future__ import annotations

from typing import Any

import pytest
from parser_texts import found, tool

from rlfactory_core.chat.families.gemma4 import parse_gemma4
from rlfactory_core.chat.families.lists import parse_xlam
from rlfactory_core.chat.families.llama3 import parse_llama4
from rlfactory_core.chat.families.xml_calls import parse_dsml, parse_hunyuan, parse_minimax, parse_seed_oss

LONDON = '<|tool_call>call:get_time{city:<|"|>London<|"|>}<tool_call|>'
THOUGHT = "<|channel>thought\nI'm\nthinking<channel|>"
NESTED = '<|tool_call>call:f{nested:{inner:<|"|>value<|"|>},list:[<|"|>a<|"|>,<|"|>b<|"|>]}<tool_call|>'
# The text, the calls, the content and the reasoning. A call whose arguments are None is malformed.
GEMMA4: list[tuple[str, list[tuple[str, Any]], str, str]] = [
    # llama.cpp
    ("Hello, world!", [], "Hello, world!", ""),
    (f"{THOUGHT}Hello, world!\nWhat's up?", [], "Hello, world!\nWhat's up?", "I'm\nthinking"),
    ("<|channel>thought<channel|>Hello, world!", [], "Hello, world!", ""),
    (LONDON, [("get_time", {"city": "London"})], "", ""),
    (f"{THOUGHT}{LONDON}", [("get_time", {"city": "London"})], "", "I'm\nthinking"),
    ("<|tool_call>call:empty_args{}<tool_call|>", [("empty_args", {})], "", ""),
    (f"Hello!{LONDON}{LONDON}", [("get_time", {"city": "London"})] * 2, "Hello!", ""),
    ("<|tool_call>call:f{a:-7,b:3.14,c:1.5e10}<tool_call|>", [("f", {"a": -7, "b": 3.14, "c": 1.5e10})], "", ""),
    ("<|tool_call>call:f{a:true,b:false,c:null}<tool_call|>", [("f", {"a": True, "b": False, "c": None})], "", ""),
    ("<|tool_call>call:f{todos:[],config:{}}<tool_call|>", [("f", {"todos": [], "config": {}})], "", ""),
    # vLLM
    (NESTED, [("f", {"nested": {"inner": "value"}, "list": ["a", "b"]})], "", ""),
    (LONDON.replace("get_time", "get-time"), [("get-time", {"city": "London"})], "", ""),
    (LONDON.replace("get_time", "time.get"), [("time.get", {"city": "London"})], "", ""),
    (f"<|tool_call>call:bad no brace<tool_call|>{LONDON}", [("", None), ("get_time", {"city": "London"})], "", ""),
    # Differences from vLLM: a call that is cut off is an error, and so is one without the word call.
    (LONDON.partition('<|"|>}')[0], [("get_time", None)], "", ""),
    (LONDON.replace("call:get", ":get"), [("", None)], "", ""),
]


@pytest.mark.parametrize(("text", "calls", "content", "reasoning"), GEMMA4)
def test_gemma4(text: str, calls: list[tuple[str, Any]], content: str, reasoning: str) -> None:
    message = parse_gemma4(text)
    assert (found(message), message.content, message.reasoning) == (calls, content, reasoning)


CITIES = (
    '[{"name": "get_weather", "arguments": {"city": "Dallas"}}, {"name": "get_weather", "arguments": {"city": "Rome"}}]'
)
CALLED = [("get_weather", {"city": "Dallas"}), ("get_weather", {"city": "Rome"})]


@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        # vLLM
        ("This is a test", [], "This is a test"),
        (CITIES, CALLED, ""),
        (f"<think>I'll check both.</think>{CITIES}", CALLED, ""),
        # Differences from vLLM, which finds calls in code fences, between tags and within text.
        (f"```json\n{CITIES}\n```", [], f"```json\n{CITIES}\n```"),
        (f"[TOOL_CALLS]{CITIES}", [], f"[TOOL_CALLS]{CITIES}"),
        (f"I'll check. {CITIES}", [], f"I'll check. {CITIES}"),
        (CITIES.removesuffix("]"), [("get_weather", None)], ""),
    ],
)
def test_xlam(text: str, calls: list[tuple[str, Any]], content: str) -> None:
    message = parse_xlam(text)
    assert (found(message), message.content) == (calls, content)


@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        ('<|python_start|>So.<|python_end|>{"name": "f", "parameters": {}}', [("f", {})], "So."),
        ('{"name": "f", "parameters": {"a": 1}}{"name": "g", "parameters": {}}', [("f", {"a": 1}), ("g", {})], ""),
        ('{"name": "f", "parameters": {"a": 1}', [("f", None)], ""),
        ('Say {"name": "f", "parameters": {}}', [], 'Say {"name": "f", "parameters": {}}'),
        ("<|python_start|>f(a=1)<|python_end|>", [], "f(a=1)"),
    ],
)
def test_llama4(text: str, calls: list[tuple[str, Any]], content: str) -> None:
    message = parse_llama4(text)
    assert (found(message), message.content) == (calls, content)


def minimax(*parameters: tuple[str, str], name: str = "f") -> str:
    """A call as the template writes it, line breaks left out."""
    body = "".join(f'<parameter name="{key}">{value}</parameter>' for key, value in parameters)
    return f'<minimax:tool_call><invoke name="{name}">{body}</invoke></minimax:tool_call>'


TYPED = tool(
    days={"type": "integer"},
    hourly={"type": "boolean"},
    nickname={"anyOf": [{"type": "string"}, {"type": "null"}]},
    theme={"type": "string", "enum": ["dark", "none"]},
    text={"type": "string"},
    wait={"anyOf": [{"type": "object"}, {"type": "null"}]},
    patches={"oneOf": [{"type": "array"}, {"type": "null"}]},
)
TWO = minimax(("text", "a")).replace("</invoke>", '</invoke><invoke name="g"></invoke>')


@pytest.mark.parametrize(
    ("text", "calls", "content", "reasoning"),
    [
        # llama.cpp: the prompt opened the thinking block
        ("I'm\nthinking\n</think>\n\nHello, world!", [], "Hello, world!", "I'm\nthinking"),
        (f"Let's call:\n</think>\n\n{minimax(name='empty_args')}", [("empty_args", {})], "", "Let's call:"),
        # vLLM
        ("</think>No tools.", [], "No tools.", ""),
        (minimax(("text", "Seattle")), [("f", {"text": "Seattle"})], "", ""),
        (TWO, [("f", {"text": "a"}), ("g", {})], "", ""),
        (minimax(("days", "5"), ("hourly", "true")), [("f", {"days": 5, "hourly": True})], "", ""),
        (minimax(("nickname", "Alice")), [("f", {"nickname": "Alice"})], "", ""),
        (minimax(("nickname", "null")), [("f", {"nickname": None})], "", ""),
        (minimax(("theme", "none"), ("text", "nil")), [("f", {"theme": "none", "text": "nil"})], "", ""),
        (minimax(("text", " hi ")), [("f", {"text": " hi "})], "", ""),
        (
            minimax(("text", "    def f():\n        return 1\n")),
            [("f", {"text": "    def f():\n        return 1\n"})],
            "",
            "",
        ),
        # Difference from vLLM: the tool manager answers a call of an unknown tool.
        (minimax(("prompt", "a cat"), name="img_gen"), [("img_gen", {"prompt": "a cat"})], "", ""),
    ],
)
def test_minimax(text: str, calls: list[tuple[str, Any]], content: str, reasoning: str) -> None:
    message = parse_minimax(text, [TYPED])
    assert (found(message), message.content, message.reasoning) == (calls, content, reasoning)


def dsml(*parameters: tuple[str, bool, str], name: str = "f") -> str:
    """A call with parameters: key, whether the value is a string, value."""
    body = "".join(
        f'<｜DSML｜parameter name="{key}" string="{str(string).lower()}">{value}</｜DSML｜parameter>\n'
        for key, string, value in parameters
    )
    call = f'<｜DSML｜invoke name="{name}">\n{body}</｜DSML｜invoke>'
    return f"<｜DSML｜function_calls>\n{call}\n</｜DSML｜function_calls>"


MIXED = dsml(("ref", False, "42"), ("name", True, "foo bar"))


@pytest.mark.parametrize("block", ["function_calls", "tool_calls"])
@pytest.mark.parametrize(
    ("text", "calls", "content", "reasoning"),
    [
        # llama.cpp: the prompt opened the thinking block
        ("I'm\nthinking</think>Hello, world!", [], "Hello, world!", "I'm\nthinking"),
        (f"Look.</think>\n\n{MIXED}", [("f", {"ref": 42, "name": "foo bar"})], "", "Look."),
        (f"Think.</think>So.\n\n{dsml(('a', False, '-14'))}", [("f", {"a": -14})], "So.", "Think."),
        (dsml(("a", False, "3.14"), ("b", False, "true")), [("f", {"a": 3.14, "b": True})], "", ""),
        (dsml(("todos", False, '["buy milk","walk dog"]')), [("f", {"todos": ["buy milk", "walk dog"]})], "", ""),
        (dsml(("config", False, '{"theme":"dark"}')), [("f", {"config": {"theme": "dark"}})], "", ""),
        # vLLM
        (dsml(name="get_time"), [("get_time", {})], "", ""),
        (f"Sure! {dsml(('text', True, 'NYC'))}", [("f", {"text": "NYC"})], "Sure!", ""),
        (dsml(("wait", False, '{"minutes":2}')), [("f", {"wait": {"minutes": 2}})], "", ""),
        (dsml(("patches", False, "[{}]")), [("f", {"patches": [{}]})], "", ""),
        (dsml(("a", True, "[1]"), ("b", False, "null")), [("f", {"a": "[1]", "b": None})], "", ""),
        (dsml(("a", False, '{"k":"北京"}')), [("f", {"a": {"k": "北京"}})], "", ""),
        (dsml(("a", True, "x")).replace(' string="true"', ""), [("f", {"a": "x"})], "", ""),
        # Differences from vLLM: what the tag says counts, and not the schema; what is no JSON is an error; nothing is
        # unwrapped or closed for the model.
        (dsml(("days", True, "42")), [("f", {"days": "42"})], "", ""),
        (dsml(("a", False, "not json")), [("f", None)], "", ""),
        (dsml(("arguments", False, '{"text":"NYC"}')), [("f", {"arguments": {"text": "NYC"}})], "", ""),
        (MIXED.replace("</｜DSML｜parameter>\n<", "<"), [("f", None)], "", ""),
        (MIXED.replace("</｜DSML｜invoke>", ""), [("f", None)], "", ""),
        # Difference from SGLang: arguments as one JSON object are an error.
        (dsml().replace('">\n', '">\n{"text": "NYC"}'), [("f", None)], "", ""),
    ],
)
def test_dsml(block: str, text: str, calls: list[tuple[str, Any]], content: str, reasoning: str) -> None:
    message = parse_dsml(text.replace("function_calls", block), [TYPED])
    assert (found(message), message.content, message.reasoning) == (calls, content, reasoning)


def hunyuan(*arguments: tuple[str, str], name: str = "f", gap: str = "\n") -> str:
    """A block with one call; the tests' tags get the suffix ``:opensource`` later."""
    body = "".join(f"<arg_key>{key}</arg_key>{gap}<arg_value>{value}</arg_value>{gap}" for key, value in arguments)
    return f"<tool_calls>{gap}<tool_call>{name}<tool_sep>{gap}{body}</tool_call>{gap}</tool_calls>"


IN_PARIS = (("text", "Paris"), ("days", "3"))
BOTH = hunyuan(*IN_PARIS).replace("</tool_calls>", "<tool_call>g<tool_sep></tool_call></tool_calls>")


@pytest.mark.parametrize(
    ("text", "calls", "content", "reasoning"),
    [
        # vLLM: both parsers and the reasoning of a prompt that opened the block
        ("A plain answer.", [], "A plain answer.", ""),
        (hunyuan(name="get_date", gap=""), [("get_date", {})], "", ""),
        (hunyuan(name="get_date"), [("get_date", {})], "", ""),
        (hunyuan(*IN_PARIS, gap=""), [("f", {"text": "Paris", "days": 3})], "", ""),
        (f"Checking.{hunyuan(*IN_PARIS)}", [("f", {"text": "Paris", "days": 3})], "Checking.", ""),
        (BOTH, [("f", {"text": "Paris", "days": 3}), ("g", {})], "", ""),
        (hunyuan(("hourly", "true"), ("wait", '{"k":1}')), [("f", {"hourly": True, "wait": {"k": 1}})], "", ""),
        (hunyuan(("text", "5"), ("patches", "[1,2]")), [("f", {"text": "5", "patches": [1, 2]})], "", ""),
        ("Some\nthought</think>The rest\nThat", [], "The rest\nThat", "Some\nthought"),
        (f"Look.</think>So.{hunyuan(('text', 'x'))}", [("f", {"text": "x"})], "So.", "Look."),
        # SGLang: white space around the name
        (hunyuan(name=" g "), [("g", {})], "", ""),
        # Differences from vLLM: text behind the block stays content; a block that is not whole is an error.
        (f"{hunyuan(('text', 'x'))} So.", [("f", {"text": "x"})], "So.", ""),
        (BOTH.removesuffix("</tool_calls>"), [("", None)], "", ""),
        ("<tool_calls><tool_call>f<tool_sep><arg_key>text</arg_key><arg_value>Par", [("f", None)], "", ""),
        (hunyuan(*IN_PARIS).replace("Paris</arg_value>", "Paris"), [("f", None)], "", ""),
        # Differences from SGLang: the separator is needed, and an unknown tool's call counts.
        (hunyuan(("text", "x")).replace("<tool_sep>", ""), [("", None)], "", ""),
        (hunyuan(name="nothing_like_it"), [("nothing_like_it", {})], "", ""),
        # A call outside of a block is content.
        (
            "<tool_call>f<tool_sep></tool_call>",
            [],
            "<tool_call:opensource>f<tool_sep:opensource></tool_call:opensource>",
            "",
        ),
    ],
)
def test_hunyuan(text: str, calls: list[tuple[str, Any]], content: str, reasoning: str) -> None:
    message = parse_hunyuan(text.replace(">", ":opensource>"), [TYPED])
    assert (found(message), message.content, message.reasoning) == (calls, content, reasoning)


def seed(*parameters: tuple[str, str], name: str = "f") -> str:
    body = "".join(f"<parameter={key}>{value}</parameter>\n" for key, value in parameters)
    return f"<seed:tool_call>\n<function={name}>\n{body}</function>\n</seed:tool_call>"


PLAN = "<seed:think>I'm thinking.</seed:think>"
OLD, NEW = 'def foo(arg = "14"):\n    return arg + "bar"\n', 'def foo(arg = "15"):\n    pass\n'


@pytest.mark.parametrize(
    ("text", "calls", "content", "reasoning"),
    [
        # llama.cpp
        (f"{PLAN}\nHello, world!", [], "Hello, world!", "I'm thinking."),
        (seed(("a", "1")), [("f", {"a": 1})], "", ""),
        (f"{seed(('a', '1'))}\n{seed(('a', '1'), ('b', '2'))}", [("f", {"a": 1}), ("f", {"a": 1, "b": 2})], "", ""),
        (seed(("todos", '[{"item": "x", "done": false}]')), [("f", {"todos": [{"item": "x", "done": False}]})], "", ""),
        (seed(("old", OLD), ("new", NEW)), [("f", {"old": OLD, "new": NEW})], "", ""),
        # vLLM
        (f"{PLAN}{seed(('path', '/tmp/x'), name='read')}", [("read", {"path": "/tmp/x"})], "", "I'm thinking."),
        (
            f"<seed:tool_call>\n<function=broken</function>\n</seed:tool_call>{seed(('city', 'Tokyo'))}",
            [("", None), ("f", {"city": "Tokyo"})],
            "",
            "",
        ),
    ],
)
def test_seed_oss(text: str, calls: list[tuple[str, Any]], content: str, reasoning: str) -> None:
    message = parse_seed_oss(text)
    assert (found(message), message.content, message.reasoning) == (calls, content, reasoning)
