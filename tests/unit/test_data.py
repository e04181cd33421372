"""Data loading: the columns of the common formats, and a clear word for every kind of bad file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rlfactory_core.errors import DataError, MissingExtraError
from rlfactory_core.tasks.data import load_samples
from rlfactory_core.tasks.settings import DataColumns
from rlfactory_core.types import Message, ToolCall

VERL = {
    "data_source": "nq",
    "prompt": [{"role": "user", "content": "Who?"}],
    "reward_model": {"style": "rule", "ground_truth": {"target": ["Ann", "Ann Lee"]}},
    "extra_info": {"index": 7, "split": "train"},
}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def load(path: Path, **columns: str) -> list[Any]:
    return load_samples(path, DataColumns(**columns), "train")


def as_parquet(path: Path, *rows: Any) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_the_verl_format_needs_no_configuration(tmp_path: Path, kind: str) -> None:
    other = VERL | {"extra_info": {"index": 8, "split": "train"}, "data_source": "hotpotqa"}
    make = write if kind == "jsonl" else as_parquet
    first, second = load(make(tmp_path / f"train.{kind}", VERL, other))
    assert (first.id, first.messages, first.answer) == ("7", (Message("user", "Who?"),), ("Ann", "Ann Lee"))
    assert (first.split, first.slice, second.id, second.slice) == ("train", "nq", "8", "hotpotqa")
    assert first.metadata["extra_info"] == {"index": 7, "split": "train"}
    assert "prompt" not in first.metadata


def test_the_layout_of_verl_itself_needs_no_configuration(tmp_path: Path) -> None:
    rows = [VERL | {"reward_model": {"style": "rule", "ground_truth": "72"}, "extra_info": {"index": 7}}]
    for path in (write(tmp_path / "q.jsonl", *rows, VERL), as_parquet(tmp_path / "q.parquet", *rows)):
        assert load(path)[0].answer == "72"
    assert load(write(tmp_path / "q.jsonl", VERL | {"reward_model": json.dumps(VERL["reward_model"])}))[0].answer == (
        "Ann",
        "Ann Lee",
    )


CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
HISTORY = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Weather "}, {"type": "text", "text": "in Rome?"}]},
    {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL]},
    {"role": "tool", "content": "18 C", "tool_call_id": "c1", "name": "weather"},
    {"role": "user", "content": "And in F?"},
]
READ = (
    Message("system", "Be brief."),
    Message("user", "Weather in Rome?"),
    Message("assistant", "", "hm", (ToolCall("c1", "weather", '{"city": "Rome"}', {"city": "Rome"}),)),
    Message("tool", "18 C", tool_call_id="c1", name="weather"),
    Message("user", "And in F?"),
)
BARE = {"name": "weather", "arguments": {"city": "Rome", "unit": None}}  # as Arrow, which fills up with nulls
OTHERS = [
    {"role": "assistant", "content": "", "reasoning": "hm", "tool_calls": [{**CALL, "function": BARE}]},
    {"role": "assistant", "content": [], "thinking": "hm", "tool_calls": json.dumps([{"id": "c1", **BARE}])},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}], "tool_calls": [CALL], "refusal": None},
]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_histories_with_tools_are_read_whole(tmp_path: Path, kind: str) -> None:
    make = write if kind == "jsonl" else as_parquet
    history = [{**message, "content": message["content"] or ""} for message in HISTORY]
    history[1]["content"] = "Weather in Rome?"  # Arrow cannot mix texts and parts
    (sample,) = load(make(tmp_path / f"q.{kind}", VERL | {"prompt": history}))
    assert sample.messages == READ


@pytest.mark.parametrize("turn", OTHERS)
def test_turns_that_call_are_written_in_several_ways(tmp_path: Path, turn: dict[str, Any]) -> None:
    (sample,) = load(write(tmp_path / "q.jsonl", VERL | {"prompt": [*HISTORY[:2], turn, *HISTORY[3:]]}))
    assert sample.messages == READ or sample.messages[2].tool_calls[0].arguments == {"city": "Rome"}
    assert (sample.messages[2].reasoning, sample.messages[:2], sample.messages[3:]) == ("hm", READ[:2], READ[3:])


def test_older_formats_and_conversations_as_json_are_messages_too(tmp_path: Path) -> None:
    functions = [
        {"role": "user", "content": "Weather in Rome?"},
        {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": ""}},
        {"role": "function", "name": "weather", "content": {"degrees": 18, "wind": None}},
    ]
    sharegpt = [
        {"from": "human", "value": "Weather in Rome?"},
        {"from": "function_call", "value": '{"name": "weather", "arguments": {}}'},
        {"from": "observation", "value": '{"degrees": 18}'},
    ]
    tagged = [*functions[:2], functions[2] | {"content": '<tool_response>\n{"degrees": 18}\n</tool_response>'}]
    twice = json.dumps(json.dumps(functions))
    for given in (functions, sharegpt, tagged, json.dumps(functions), str(sharegpt), twice):
        (sample,) = load(write(tmp_path / "q.jsonl", VERL | {"prompt": given}))
        call = ToolCall("call_0", "weather", "{}", {})
        result = Message("tool", '{"degrees": 18}', tool_call_id="call_0", name="weather")
        assert sample.messages == (
            Message("user", "Weather in Rome?"),
            Message("assistant", "", tool_calls=(call,)),
            result,
        )
    for text in (
        "[1, 2, 3]",
        '{"role": "cook", "name": "Ann"}',
        '["a", "b"]',
        '[{"role": "cook"}] Who is it?',
        '"[1]"',
    ):
        assert load(write(tmp_path / "q.jsonl", VERL | {"prompt": text}))[0].prompt == text


def test_results_stand_in_the_order_of_their_calls(tmp_path: Path) -> None:
    calls = [{"id": key, "function": {"name": "look", "arguments": {}}} for key in ("a", "b")]
    results = [{"role": "tool", "tool_call_id": key, "content": key} for key in ("b", "a")]
    turns = [*VERL["prompt"], {"role": "assistant", "tool_calls": calls}, *results, *VERL["prompt"]]
    (sample,) = load(write(tmp_path / "q.jsonl", VERL | {"prompt": turns}))
    assert [message.content for message in sample.messages] == ["Who?", "", "a", "b", "Who?"]


def test_an_answer_may_stand_behind_a_solution_or_in_the_prompt(tmp_path: Path) -> None:
    turn = {"role": "assistant", "content": "Ann"}
    path = write(tmp_path / "q.jsonl", answer("One and one.\n#### 1,002 ") | {"prompt": [*VERL["prompt"], turn]})
    (found,) = load(path, answer_after="####", last_turn="drop")
    assert (found.answer, found.messages) == ("1,002", (Message("user", "Who?"),))
    whole = load_samples(path, DataColumns(answer_after=None, last_turn="keep"), "train")[0]
    assert (whole.answer, whole.messages[-1].content) == ("One and one.\n#### 1,002 ", "Ann")
    with pytest.raises(DataError, match=r"no answer follows data\.columns.answer_after=Answer:"):
        load(path, answer_after="Answer:", last_turn="drop")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ('["Ann", "Ann Lee"]', ("Ann", "Ann Lee")),
        ("['Ann', 'Ann Lee']", ("Ann", "Ann Lee")),
        ('["4", 5]', ("4", "5")),
        ("['Ann' 'Lee']", "['Ann' 'Lee']"),  # as numpy writes two texts, which Python reads as one
        ("array(['Ann', 'Lee'], dtype=object)", "array(['Ann', 'Lee'], dtype=object)"),
        ("{'target': array(['Ann'], dtype=object)}", "{'target': array(['Ann'], dtype=object)}"),
        ("[1, 2]", "[1, 2]"),
        ('[{"name": "look"}]', '[{"name": "look"}]'),
        ("[0, 1)", "[0, 1)"),
    ],
)
def test_a_list_of_texts_in_a_text_is_several_answers(
    tmp_path: Path, given: str, read: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert load(write(tmp_path / "q.jsonl", answer(given)))[0].answer == read
    kept = isinstance(read, str) and given != "[0, 1)"
    assert ("1 of 1 answers" in caplog.text) == kept


def test_other_columns_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "q.jsonl", {"question": "Who?", "a.b": 3, "x": {"a": "no"}}, {"question": "?", "a.b": "y"})
    first, second = load(path, prompt="question", answer="a.b", slice="type")
    assert (first.prompt, first.answer, first.id, first.slice) == ("Who?", "3", "0", "")
    assert (second.answer, second.id) == ("y", "1")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["look", "go"], ("look", "go")),
        ('["look"]', ("look",)),
        ([{"type": "function", "function": {"name": "look", "parameters": {}}}, {"name": "go"}], ("look", "go")),
        ("look", ("look",)),
        ([], ()),
        (None, None),
    ],
)
def test_the_tools_of_a_row(tmp_path: Path, given: Any, names: tuple[str, ...] | None) -> None:
    path = write(tmp_path / "q.jsonl", VERL | {"tools": given})
    assert [sample.tools for sample in load(path)] == [names]
    assert load_samples(path, DataColumns(tools=None), "train")[0].tools is None


def test_repeated_ids_give_way_to_row_numbers(tmp_path: Path) -> None:
    assert [sample.id for sample in load(write(tmp_path / "q.jsonl", VERL, VERL))] == ["0", "1"]


def test_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(VERL).encode() + b"\n\n  \n")
    assert len(load(path)) == 1


def asked(message: dict[str, Any]) -> dict[str, Any]:
    return VERL | {"prompt": [{"role": "assistant", **message}, *VERL["prompt"]]}


def answer(value: Any) -> dict[str, Any]:
    return VERL | {"reward_model": {"ground_truth": {"target": value}}}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], r"has no rows"),
        ([[1]], r"line 1 is a JSON list; expected one object"),
        (
            [{"question": "?", "answer": "x"}],
            r"no column 'prompt' for the prompt\. Found: answer, question\. .*data\.columns\.prompt=",
        ),
        (
            [VERL | {"reward_model": {"truth": "x"}}],
            r"no column 'reward_model\.ground_truth\.target' for the answer\. Found: .*truth.*data\.columns\.answer=",
        ),
        ([VERL, VERL | {"prompt": []}], r"row 1 \(from 0\): column 'prompt' is empty"),
        ([VERL | {"prompt": "  "}], r"row 0 .* is empty"),
        ([VERL | {"prompt": [{"role": "user", "content": ""}]}], r"only empty messages"),
        ([VERL | {"prompt": [{"role": "robot", "content": "x"}]}], r"robot.*expected \{role, content\}"),
        ([VERL | {"prompt": '[{"role": "user", "content": "cut'}], r"begins like messages as JSON, and cannot be read"),
        (
            [VERL | {"prompt": "[{'content': 'x', 'role': 'user'}\n {'content': 'y', 'role': 'user'}]"}],
            r"begins like mess",
        ),
        ([VERL | {"prompt": {"messages": VERL["prompt"]}}], r"with messages in 'messages'; write .*COLUMN.messages"),
        ([VERL | {"prompt": json.dumps({"messages": VERL["prompt"]})}], r"an object with messages in 'messages'"),
        ([asked({"content": None})], r"null beside tool calls only"),
        ([asked({"content": [{"type": "image_url", "image_url": {"url": "x"}}]})], r"parts with texts; got image_url"),
        ([asked({"content": "x", "tool_plan": "first"})], r"no field 'tool_plan', which no chat template writes"),
        ([asked({"content": "x", "tool_calls": [{"name": "look", "arguments": "{"}]})], r"that are a JSON object"),
        ([asked({"content": "x", "tool_calls": [{"type": "custom", "custom": {}}]})], r"tool calls with the name and"),
        ([asked({"role": "user", "content": "x", "reasoning": "hm"})], r"reasoning as a text, in a message of the ass"),
        (
            [VERL | {"prompt": [*VERL["prompt"], {"role": "assistant", "content": "Ann"}]}],
            r"'Ann'.*last_turn=drop.*keep",
        ),
        ([answer("One and one.\n#### 2")], r"'#### 2', as in GSM8K\..*answer_after=####.*answer_after=null"),
        ([answer("One and one. #### 2")], r"'#### 2', as in GSM8K"),
        ([VERL | {"prompt": ["Who?"]}], r"expected \{role, content\}"),
        ([answer("")], r"is empty; every question needs an answer"),
        ([answer(None)], r"is empty"),
        ([answer([""])], r"is empty"),
        ([answer(float("nan"))], r"is not a number \(NaN\), which no answer equals"),
        ([answer([1.0, float("nan")])], r"is not a number \(NaN\)"),
        ([VERL, VERL | {"prompt": "half an emoji: \ud83d"}], r"line 2 has half of a character.*'.ud83d'"),
        ([answer([["Ann", "Bob"]])], r"holds \['Ann', 'Bob'\], a list; expected a text, a number, or a list of these"),
        ([answer([{"text": "Ann"}])], r"a dict; expected a text"),
        ([answer({"value": "x"})], r"is a struct with value; name one"),
        ([VERL, {"prompt": "Who?"}], r"row 1 .* is empty"),
        ([VERL | {"tools": [3]}], r"column 'tools' holds '\[3\]'; expected the names.*data\.columns\.tools=null"),
        ([VERL | {"tools": {"a": 1}}], r"column 'tools' holds"),
    ],
)
def test_bad_rows_are_refused_in_plain_words(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(write(tmp_path / "bad.jsonl", *rows))
    assert "bad.jsonl" in str(caught.value)
    assert caught.value.exit_code == 2


def test_an_array_has_the_same_rows_as_lines(tmp_path: Path) -> None:
    lines, array = write(tmp_path / "q.jsonl", VERL, VERL), tmp_path / "q.json"
    array.write_text("\n" + json.dumps([VERL, VERL], indent=1), encoding="utf-8-sig")
    assert load(array) == load(lines)
    for text, says in (
        ("[3]", "row 0 .* JSON int"),
        ("[{", "cannot be read as a JSON array"),
        ("[]", "has no rows"),
    ):
        array.write_text(text)
        with pytest.raises(DataError, match=says):
            load(array)


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(VERL) + "\n{'prompt': 1}\n")
    with pytest.raises(DataError, match=r"bad\.jsonl, line 2 is not JSON"):
        load(path)
    path.write_bytes(b'{"prompt": "\xff"}\n')
    with pytest.raises(DataError, match=r"line 1 is not JSON"):
        load(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.jsonl", "There is no data file"),
        ("folder.jsonl", "is not a file"),
        ("data.csv", r"\.csv.*expected \.jsonl"),
    ],
)
def test_a_file_that_cannot_be_one_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "data.csv").write_text("a,b\n")
    with pytest.raises(DataError, match=message):
        load(tmp_path / name)


def test_answers_of_parquet_are_what_was_written(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for name, values in (
        ("float", pyarrow.array([0.1, 42.0], pyarrow.float32())),
        ("bytes", pyarrow.array([b"A", b"B"])),
    ):
        parquet.write_table(pyarrow.table({"prompt": ["1?", "2?"], "answer": values}), tmp_path / f"{name}.parquet")
    assert [sample.answer for sample in load(tmp_path / "float.parquet", answer="answer")] == ["0.1", "42.0"]
    with pytest.raises(DataError, match="holds b'A', a bytes; expected a text"):  # or 65 would be an accepted answer
        load(tmp_path / "bytes.parquet", answer="answer")


def test_a_broken_parquet_file_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(DataError, match="cannot be read as parquet"):
        load(tmp_path / "x.parquet")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"")
    with pytest.raises(MissingExtraError, match="pip install pyarrow"):
        load(tmp_path / "x.parquet")
