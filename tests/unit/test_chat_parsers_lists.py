"""Lists of calls in Python's syntax: what is a call, what is an error, what is neither."""

from __future__ import annotations

from typing import Any

import pytest
from parser_texts import found

from rlfactory_core.chat.families.lists import parse_lfm2, parse_pythonic
from rlfactory_core.chat.parsers.literals import python_text

PYTHON_VALUES = (
    r"""[f(a='it\'s', b="\u00e9\n", c=-1.5e3, d=True, e=None, f=false, """
    r"""g=[1, ['x']], h={'k': {"l": []}}, i={})]"""
)


def test_a_python_list_of_calls() -> None:
    expected = {"a": "it's", "b": "é\n", "c": -1500.0, "d": True, "e": None, "f": False, "g": [1, ["x"]]}
    expected |= {"h": {"k": {"l": []}}, "i": {}}
    for text in (PYTHON_VALUES, f"So: <|python_start|>{PYTHON_VALUES}<|python_end|>"):
        assert found(parse_pythonic(text)) == [("f", expected)]
    assert found(parse_lfm2(f"<|tool_call_start|> {PYTHON_VALUES} <|tool_call_end|>")) == [("f", expected)]
    assert parse_lfm2(PYTHON_VALUES).tool_calls == ()


@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        ("[f(), g.h(a=1)]", [("f", {}), ("g.h", {"a": 1})], ""),
        ("<think>hm [g()]</think> [f()][g()] done", [("f", {}), ("g", {})], "done"),
        ("I could write [f(a=1)].", [], "I could write [f(a=1)]."),
        ("[1, 2]", [], "[1, 2]"),
        ("[see f(x)]", [], "[see f(x)]"),
        ("[f(1)]", [("f", None)], ""),  # a value without its name
        ("[f(a=x)]", [("f", None)], ""),  # no variables
        ("[f(a=1 + 1)]", [("f", None)], ""),
        ("[f(a=(1, 2))]", [("f", None)], ""),
        ("[f(a=01)]", [("f", None)], ""),
        ("[f(a=1e999)]", [("f", None)], ""),
        ("[f(a={1: 2})]", [("f", None)], ""),
        ("[f(a=[1 2])]", [("f", None)], ""),
        ("[f(a='x)]", [("f", None)], ""),
        ("[f(a=1), g(a=1]", [("g", None)], ""),  # a list that is not closed holds no calls
        ("[f(a=1)", [("f", None)], ""),
        ("<|python_start|>[f(a=1)]", [("f", None)], ""),
        ("<|python_start|>f(a=1)<|python_end|>so", [("", None)], "so"),
    ],
)
def test_pythonic_is_strict(text: str, calls: list[Any], content: str) -> None:
    message = parse_pythonic(text)
    assert (found(message), message.content) == (calls, content)


def test_escapes_of_python_strings() -> None:
    text = r"""[f(a="\ud83d\ude42 \x41 \q \/", b="\ud83d", c='\U0001f642')]"""
    assert found(parse_pythonic(text)) == [("f", {"a": "🙂 A \\q /", "b": "\ufffd", "c": "🙂"})]


@pytest.mark.parametrize("value", [None, True, -1.5, 'a "b" \\ \n é', ["x", {"k": [False, None]}], {}])
def test_what_python_text_writes_is_read(value: Any) -> None:
    assert found(parse_pythonic(f"[f(a={python_text(value)})]")) == [("f", {"a": value})]
