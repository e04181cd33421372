"""Files of traces that are broken: each row is trained right, or refused in words with its number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trace_plays import transcript

from rlfactory_core.errors import ChatFormatError, DataError
from rlfactory_core.tasks.traces import Trace, read_traces, shown_traces

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOL = {"type": "function", "function": {"name": "search", "description": "Finds texts.", "parameters": SCHEMA}}
USER = {"role": "user", "content": "Who?"}
ANSWER = {"role": "assistant", "content": "Ann."}
SEEN = "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n"
GOOD = {"messages": [USER, ANSWER]}


def call(arguments: Any = '{"query": "who"}', name: str = "search", key: str | None = "c1") -> dict[str, Any]:
    return {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def result(content: Any = "Ann", key: str | None = "c1", **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": key, "content": content, **fields}


def row(*messages: Any, tools: Any = (TOOL,), **columns: Any) -> dict[str, Any]:
    return {"messages": list(messages), "tools": list(tools) if isinstance(tools, tuple) else tools, **columns}


def dotted(name: str) -> dict[str, Any]:
    return {**TOOL, "function": {**TOOL["function"], "name": name}}


CALLED = '[[<tool_call>\n{"name": "search", "arguments": {"query": "who"}}\n</tool_call><|im_end|>]]'
RESULT = "<tool_response>\nAnn\n</tool_response>"
MADE = [USER, calling(call()), result(), ANSWER]
DEEP = '{"a":' * 5000 + "1" + "}" * 5000
REFUSED: dict[str, tuple[Any, str]] = {  # the second row of a file -> what the error says
    "half a character": (row({**USER, "content": "\ud83d"}, ANSWER), r"line 2 has half of a character"),
    "half a character in arguments": (row(USER, calling(call('{"query": "\\ud83d"}'))), "half of a character"),
    "calls without the column tools": (row(*MADE, tools=None), r"calls 'search', a tool that the task does not have"),
    "a tool that the row does not have": (row(USER, calling(call(name="serch"))), "Did you mean 'search'"),
    "a call without a result": (row(USER, calling(call()), ANSWER), "message 2 .* follows calls of search"),
    "one result for two calls": (row(USER, calling(call(), call(key="c2")), result(), ANSWER), "have no results"),
    "a result without a call": (row(USER, result(), ANSWER), "result of a call that nobody has made"),
    "two results for a call": (row(USER, calling(call()), result(), result(), ANSWER), "has a result before it"),
    "a result of another call": (row(USER, calling(call()), result(key="c9"), ANSWER), "nobody has made"),
    "two system messages": (
        row({"role": "system", "content": "A"}, {"role": "system", "content": "B"}, *MADE),
        "system",
    ),
    "a system message in two places": (
        row({"role": "system", "content": "A"}, *MADE, system="B"),
        "message 1 .* system",
    ),
    "one id for two calls": (row(USER, calling(call(), call()), result(), result(), ANSWER), "two calls with one id"),
    "an image": (row({"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}, ANSWER), "got image_url"),
    "images in a column": (row(USER, ANSWER, images=["a.png"]), "has images"),
    "arguments that are no JSON": (row(USER, calling(call("query=who"))), r"arguments of search .* got 'query=who'"),
    "arguments as a list": (row(USER, calling(call([1]))), "arguments of search that are a JSON object"),
    "NaN in arguments": (row(USER, calling(call({"query": float("nan")}))), "are no JSON"),
    "NaN in the text of arguments": (row(USER, calling(call('{"query": NaN}'))), "arguments of search"),
    "NaN in a schema": (
        row(
            *MADE,
            tools=(
                {**TOOL, "function": {**TOOL["function"], "parameters": {"properties": {}, "maximum": float("nan")}}},
            ),
        ),
        "search has parameters that are no JSON",
    ),
    "arguments nested too deeply": (row(USER, calling(call(DEEP))), "arguments of search"),
    "a result nested too deeply": (
        row(USER, calling(call()), result(json.loads("[" * 900 + "]" * 900)), ANSWER),
        "nested too deeply|expected",
    ),
    "an empty turn": (row(USER, {"role": "assistant", "content": " "}), "empty turn of the assistant"),
    "a turn without content": (row(USER, {"role": "assistant", "content": None}), "expected a content"),
    "thinking alone": (row(USER, {"role": "assistant", "content": "", "reasoning_content": "Hm."}), "empty turn"),
    "an unknown role": (row({"role": "chef", "content": "A"}, ANSWER), "'chef'.*expected .*one of the roles"),
    "no role": (row({"content": "Who?"}, ANSWER), "one of the roles"),
    "two turns in a row": (row(USER, ANSWER, ANSWER), "follows another turn of the assistant"),
    "the assistant first": (row(ANSWER, USER, ANSWER), "begins with the assistant"),
    "no turn of the assistant": (row(USER), "no turn with the role 'assistant'"),
    "no message": (row(), "expected a conversation"),
    "messages that are none": (row("Who?", 7), "expected {role, content}"),
    "messages as a broken text": (
        {"messages": '[{"role": "user", "content": "Who?"}, {"role": "assi'},
        "no turn|cannot be read",
    ),
    "tools as a text": (row(*MADE, tools="search"), "column 'tools' holds 'search'"),
    "tools by their names": (row(*MADE, tools=("search",)), "expected its name, description and parameters"),
    "two tools of one name": (row(*MADE, tools=(TOOL, TOOL)), "2 tools with the name 'search'"),
    "an unknown field of a message": (row(USER, {**ANSWER, "emotion": "joy"}), "'emotion', which no chat template"),
    "a weight between 0 and 1": (row(USER, {**ANSWER, "weight": 0.5}), "weight 0.5; expected 0 or 1"),
    "only weights of 0": (row(USER, {**ANSWER, "weight": 0}), "no turn with a weight of 1"),
    "a weight of the user": (row({**USER, "weight": 1}, ANSWER), "expected turns of the assistant"),
    "a column with too few weights": (row(USER, ANSWER, USER, ANSWER, train=[1, 0, 1]), "has 3 weights"),
    "a preference": ({"prompt": "Who?", "chosen": "Ann.", "rejected": "Bob."}, "holds a preference"),
    "an answer that is not wanted": ({"prompt": "Who?", "completion": "Bob.", "label": False}, "labelled false"),
    "a whole text": ({"text": "Who? Ann."}, "has the columns text; expected a conversation"),
    "an answer that is empty": ({"query": "Who?", "answers": "[]", "tools": "[]"}, "nothing to learn"),
    "a list of calls with a word": (
        {
            "system": 'functions in JSON format that you can invoke: [{"name": "f", "parameters": {}}]',
            "conversations": [{"from": "user", "value": "Who?"}, {"from": "assistant", "value": "[f(a=b)]"}],
        },
        "no value stands before",
    ),
    "a tagged call that is cut": (
        row(USER, {"role": "assistant", "content": '<tool_call>\n{"name": "search", "argu'}),
        "holds no call",
    ),
}
BROKEN_FILES: dict[str, tuple[bytes, str]] = {
    "a truncated last line": (
        json.dumps(GOOD).encode() + b'\n{"messages": [{"role": "user", "con',
        r"line 2 is not JSON",
    ),
    "a line nested too deeply": (json.dumps(GOOD).encode() + b"\n" + b"[" * 10**6, "line 2 is not JSON"),
    "bytes that are no text": (json.dumps(GOOD).encode() + b'\n{"messages": "\xff"}', "line 2 is not JSON"),
    "a row that is no object": (json.dumps(GOOD).encode() + b"\n[1]", "line 2 is a JSON list"),
    "no row": (b"\n\n", "has no rows"),
}
TRAINED: dict[str, tuple[Any, str]] = {  # the second row -> what the model sees, and what it learns
    "names with dots": (
        row(USER, calling(call(name="math.find")), tools=(dotted("math.find"),)),
        '"name": "math.find"',
    ),
    "arguments as an object": (row(USER, calling(call({"query": "who"}))), SEEN + CALLED),
    "arguments encoded twice": (row(USER, calling(call(json.dumps('{"query": "who"}')))), SEEN + CALLED),
    "no arguments": (row(USER, calling(call(""))), '{"name": "search", "arguments": {}}'),
    "ids that are missing": (row(USER, calling(call(key=None)), result(key=None), ANSWER), RESULT),
    "ids that are numbers": (row(USER, calling({**call(), "id": 0}), {**result(), "tool_call_id": 0}, ANSWER), RESULT),
    "one id in two turns": (row(*MADE, *MADE[:3], ANSWER), f"{RESULT}<|im_end|>\n<|im_start|>assistant\n[[Ann."),
    "results in another order": (
        row(USER, calling(call(), call(key="c2")), result("2", "c2"), result("1"), ANSWER),
        "1\n</tool_response>\n<tool_response>\n2",
    ),
    "a trailing question": (row(USER, ANSWER, USER), "[[Ann.<|im_end|>]]"),
    "a call at the end": (row(USER, calling(call())), SEEN + CALLED),
    "nulls in all fields": (
        row(USER, {**ANSWER, "tool_calls": None, "name": None, "weight": None}, system=None),
        "[[Ann",
    ),
    "the words of special tokens": (row({**USER, "content": "Who<|im_end|>?"}, ANSWER), "Who<|im_end|>?<|im_end|>"),
    "tools as a text of JSON": (row(*MADE, tools=json.dumps([TOOL])), RESULT),
    "no tools, as a text": (row(USER, ANSWER, tools="[]"), "user\nWho?"),
    "NaN for a column without a value": (row(USER, ANSWER, system=float("nan"), weight=float("nan")), "[[Ann."),
    "an empty question": (row({"role": "user", "content": ""}, ANSWER), "user\n<|im_end|>"),
    "only a system message": (row({"role": "system", "content": "Say it."}, ANSWER), "Say it."),
    "another layout": (
        {"conversations": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "Ann."}]},
        "[[Ann.",
    ),
}


def read(path: Path) -> list[Trace]:
    """As a task without tools shows them."""
    return shown_traces(read_traces(path), ())


def write(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(json.dumps(each) for each in rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", REFUSED)
def test_a_broken_row_is_refused_in_words_with_its_number(tmp_path: Path, name: str) -> None:
    broken, reason = REFUSED[name]
    path = write(tmp_path / "traces.jsonl", GOOD, broken)
    with pytest.raises(DataError, match=f"(?s){reason}") as refused:
        read(path)
    assert f"{path}, row 1 (from 0)" in str(refused.value) or f"{path}, line 2" in str(refused.value)
    assert len(str(refused.value)) < 1200


@pytest.mark.parametrize("name", BROKEN_FILES)
def test_a_broken_file_is_refused_in_words(tmp_path: Path, name: str) -> None:
    data, reason = BROKEN_FILES[name]
    (tmp_path / "traces.jsonl").write_bytes(data)
    with pytest.raises(DataError, match=reason):
        read(tmp_path / "traces.jsonl")


@pytest.mark.parametrize("name", TRAINED)
def test_an_odd_row_is_trained_as_it_is_meant(tmp_path: Path, name: str) -> None:
    odd, shown = TRAINED[name]
    path = write(tmp_path / "traces.jsonl", GOOD, odd)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # a byte order mark, as Windows writes it
    first, second = read(path)
    assert transcript(first).endswith("[[Ann.<|im_end|>]]")
    assert shown in transcript(second)


def test_all_broken_rows_are_named_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "traces.jsonl", GOOD, {"a": 1}, GOOD, {"b": 1}, {"c": 1}, {"d": 1})
    with pytest.raises(DataError, match=r"In all 4 of 6 rows are refused: 1, 3, 4, 5\.") as refused:
        read(path)
    assert str(refused.value).count("\n") == 3


def test_a_stop_token_within_a_turn_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "traces.jsonl", row(USER, {**ANSWER, "content": "Ann<|im_end|>\nBob"}))
    with pytest.raises(ChatFormatError, match="holds a token that ends a turn"):
        transcript(read(path)[0])


def test_what_is_not_learnt_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "traces.jsonl", row(USER, ANSWER, USER, enable_thinking=False), GOOD)
    first, second = read(path)
    assert (len(first.notes), second.notes) == (2, ())
    assert first.notes[1] == "what follows the assistant's last turn"


def test_a_second_conversation_in_a_row_is_named(tmp_path: Path) -> None:
    beside = {"conversations": [USER, ANSWER], "prompt": "2 + 2?", "response": "5"}
    (trace,) = read(write(tmp_path / "traces.jsonl", row(USER, ANSWER, **beside)))
    assert [note.split(",")[0] for note in trace.notes] == ["the column 'conversations'", "the column 'response'"]
