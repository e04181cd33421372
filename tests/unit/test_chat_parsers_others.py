"""Cases of other projects' parser tests, shortened, and where our parsers differ from theirs on purpose.

The sources: vLLM 0.33.0 (``tests/tool_parsers``, ``tests/parser/engine``), llama.cpp (``tests/test-chat.cpp``).
"""

from __future__ import annotations

from typing import Any

import pytest
from parser_texts import found

from rlfactory_core.chat.gemma4 import parse_gemma4
from rlfactory_core.chat.llama3 import parse_llama4
from rlfactory_core.chat.xlam import parse_xlam

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
