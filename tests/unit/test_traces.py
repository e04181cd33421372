"""Reading traces in the layouts of others: the same conversation is read from each."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from trace_plays import transcript

from rlfactory_core.errors import DataError
from rlfactory_core.tasks.traces import read_trace, read_traces
from rlfactory_core.types import Message, ToolCall, ToolSpec

PLACE = "traces.jsonl, row 0 (from 0)"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
FLAT = {"city": {"type": "str"}, "days": {"type": "int, optional"}}  # xLAM's
TOOLS = (ToolSpec("get weather", "A forecast.", SCHEMA),)
OPENAI = {"type": "function", "function": {"name": "get weather", "description": "A forecast.", "parameters": SCHEMA}}
BARE = {"name": "get weather", "description": "A forecast.", "parameters": {**SCHEMA, "type": "dict"}}
ROME, OSLO = {"city": "Rome", "days": 2}, {"city": "Oslo"}
ASKED = Message("user", "Rome and Oslo?")


def called(name: str = "get weather") -> tuple[ToolCall, ...]:
    texts = (json.dumps(ROME), json.dumps(OSLO))
    return tuple(ToolCall(f"call_{n}", name, text, json.loads(text)) for n, text in enumerate(texts))


READ = (
    ASKED,
    Message("assistant", "", tool_calls=called()),
    Message("tool", '{"c": 18}', tool_call_id="call_0", name="get weather"),
    Message("tool", '{"c": 3}', tool_call_id="call_1", name="get weather"),
    Message("assistant", "18 and 3.", reasoning="Two numbers."),
)


def openai(as_text: bool = True) -> list[dict[str, Any]]:
    calls = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": "get weather", "arguments": json.dumps(each) if as_text else each},
        }
        for number, each in enumerate((ROME, OSLO))
    ]
    return [
        {"role": "user", "content": [{"type": "text", "text": "Rome and "}, {"type": "text", "text": "Oslo?"}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": '{"c": 3}'},
        {"role": "tool", "tool_call_id": "call_0", "content": '{"c": 18}'},
        {"role": "assistant", "content": "18 and 3.", "reasoning_content": "Two numbers."},
    ]


def sharegpt(calls: str, results: str, *, called_by: str = "function_call", answered_by: str = "observation") -> Any:
    return [
        {"from": "human", "value": "Rome and Oslo?"},
        {"from": called_by, "value": calls},
        {"from": answered_by, "value": results},
        {"from": "gpt", "value": "<think>\nTwo numbers.\n</think>\n\n18 and 3."},
    ]


LISTED = json.dumps([{"name": "get weather", "arguments": each} for each in (ROME, OSLO)])
PYTHONIC = "[get weather(city='Rome', days=2), get weather(city=\"Oslo\")]"
TAGGED = "\n".join(
    f"<tool_call>\n{json.dumps({'name': 'get weather', 'arguments': each})}\n</tool_call>" for each in (ROME, OSLO)
)
TWO = json.dumps([{"c": 18}, {"c": 3}])
TAGGED_TWO = "\n".join(f"<tool_response>\n{json.dumps(each)}\n</tool_response>" for each in ({"c": 18}, {"c": 3}))
TOOLACE = f"A list of functions in JSON format that you can invoke:\n{json.dumps([BARE])}. \nWrite [f(a=1)]"
HERMES = f"You are a function calling model. <tools>\n{json.dumps([OPENAI])}\n</tools> Write <tool_call> tags."
FACTORY = [  # LLaMA-Factory's own layout of its version 1
    {"role": "user", "content": [{"type": "text", "value": "Rome and Oslo?"}], "loss_weight": 0.0},
    {
        "role": "assistant",
        "content": [
            {"type": "tool_call", "value": json.dumps({"name": "get weather", "arguments": each})}
            for each in (ROME, OSLO)
        ],
        "loss_weight": 1.0,
    },
    {"role": "tool", "content": [{"type": "text", "value": TWO}], "loss_weight": 0.0},
    {
        "role": "assistant",
        "content": [{"type": "reasoning", "value": "Two numbers."}, {"type": "text", "value": "18 and 3."}],
        "loss_weight": 1.0,
    },
]
LAYOUTS: dict[str, dict[str, Any]] = {
    "OpenAI": {"messages": openai(), "tools": [OPENAI], "parallel_tool_calls": True},
    "arguments as objects": {"messages": openai(as_text=False), "tools": json.dumps([OPENAI])},
    "OpenAI's older name": {"messages": openai(), "functions": [BARE]},
    "TRL": {"prompt": openai()[:1], "completion": openai()[1:], "tools": [OPENAI]},
    "TRL, a text": {"prompt": "Rome and Oslo?", "completion": openai()[1:], "tools": [OPENAI]},
    "LLaMA-Factory": {"conversations": sharegpt(LISTED, TWO), "tools": json.dumps([BARE]), "system": ""},
    "LLaMA-Factory 1": {"messages": FACTORY, "tools": json.dumps([BARE])},
    "ToolACE": {"system": TOOLACE, "conversations": sharegpt(PYTHONIC, TWO, called_by="assistant", answered_by="tool")},
    "Hermes": {
        "conversations": [
            {"from": "system", "value": HERMES},
            *sharegpt(TAGGED, TAGGED_TWO, called_by="gpt", answered_by="tool"),
        ]
    },
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_same_conversation_is_read_from_each_layout(name: str) -> None:
    trace = read_trace(LAYOUTS[name], PLACE)
    assert trace.messages == READ
    assert trace.tools == TOOLS
    assert trace.learnt == (True, True)
    assert bool(trace.notes) is (name in ("ToolACE", "Hermes"))  # their system message is left out, which is said
    assert trace.prompt == (ASKED,)


@pytest.mark.parametrize("name", ["OpenAI", "TRL", "LLaMA-Factory", "LLaMA-Factory 1"])
def test_parquet_gives_the_same(tmp_path: Path, name: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    row = json.loads(json.dumps(LAYOUTS[name]))
    for message in row.get("messages", ()) if name == "OpenAI" else ():
        if isinstance(message["content"], list):  # Arrow cannot mix texts and parts
            message["content"] = "Rome and Oslo?"
    parquet.write_table(pyarrow.Table.from_pylist([row, row]), tmp_path / "traces.parquet")
    first, second = read_traces(tmp_path / "traces.parquet")
    assert first.messages == second.messages == READ
    assert first.tools == TOOLS


@pytest.mark.parametrize("as_text", [True, False])
def test_a_row_of_xlam_has_a_question_and_calls(as_text: bool) -> None:
    tools, answers = [{**BARE, "parameters": FLAT}], json.loads(LISTED)
    row = {"id": 7, "query": "Rome and Oslo?", "tools": tools, "answers": answers, "func_name": None}
    if as_text:
        row |= {"tools": json.dumps(tools), "answers": json.dumps(answers)}
    trace = read_trace(row, PLACE)
    assert (trace.messages, trace.tools) == (READ[:2], TOOLS)
    in_words = read_trace({**row, "answers": "I cannot."}, PLACE)
    assert in_words.messages == (ASKED, Message("assistant", "I cannot."))


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        ({"type": "str, optional", "default": ""}, {"type": "string", "default": ""}),
        ({"type": "List[int]"}, {"type": "array", "items": {"type": "integer"}}),
        ({"type": "Optional[float]"}, {"type": "number"}),
        ({"type": "Union[int, str]", "description": "One."}, {"description": "One."}),
        ({"type": "any"}, {}),
        ({"type": "bool", "required": False}, {"type": "boolean"}),
        (
            {"type": "dict", "properties": {"a": {"type": "int"}}},
            {"type": "object", "properties": {"a": {"type": "integer"}}},
        ),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
    ],
)
def test_types_have_the_names_of_json_schema(given: dict[str, Any], schema: dict[str, Any]) -> None:
    row = {"query": "?", "answers": "No.", "tools": [{"name": "f", "parameters": {"x": given}}]}
    assert read_trace(row, PLACE).tools[0].parameters["properties"] == {"x": schema}


TURNS = [
    {"role": "user", "content": "A?"},
    {"role": "assistant", "content": "A."},
    {"role": "user", "content": "B?"},
    {"role": "assistant", "content": "B."},
]


@pytest.mark.parametrize(
    ("row", "learnt"),
    [
        ({"messages": TURNS}, (True, True)),
        ({"messages": [TURNS[0], {**TURNS[1], "weight": 0}, *TURNS[2:]]}, (False, True)),
        ({"messages": [TURNS[0], {**TURNS[1], "train": False}, *TURNS[2:]]}, (False, True)),
        ({"messages": [*TURNS[:3], {**TURNS[3], "loss": 0.0}]}, (True, False)),
        ({"messages": TURNS, "weight": [0, 0, 0, 1]}, (False, True)),
        ({"messages": TURNS, "train": [True, False]}, (True, False)),
        ({"messages": json.dumps([TURNS[0], {**TURNS[1], "weight": 0}, *TURNS[2:]])}, (False, True)),
        ({"prompt": TURNS[:3], "completion": TURNS[3:]}, (False, True)),
        ({"prompt": "A?", "response": "A."}, (True,)),
        ({"prompt": [TURNS[0], {**TURNS[1], "weight": 1}, TURNS[2]], "completion": "B."}, (True, True)),
    ],
)
def test_weights_name_the_turns_that_are_learnt(row: dict[str, Any], learnt: tuple[bool, ...]) -> None:
    assert read_trace(row, PLACE).learnt == learnt


def test_a_row_that_says_nothing_of_tools_has_those_of_the_task() -> None:
    assert read_trace({"messages": openai()}, PLACE).shown(TOOLS).tools == TOOLS
    assert read_trace({"messages": openai(), "tools": [BARE]}, PLACE).shown(()).tools == TOOLS
    assert read_trace({"messages": TURNS, "tools": []}, PLACE).shown(TOOLS).tools == ()
    with pytest.raises(DataError, match="calls 'get weather', a tool that the task does not have"):
        read_trace({"messages": openai()}, PLACE).shown(())


def test_the_model_sees_a_trace_as_at_inference() -> None:
    text = transcript(read_trace(LAYOUTS["ToolACE"], PLACE))
    assert text.startswith("<|im_start|>system\n# Tools")
    call = '<tool_call>\n{"name": "get weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'
    assert f"<|im_start|>assistant\n[[{call}" in text
    assert '</tool_call><|im_end|>]]\n<|im_start|>user\n<tool_response>\n{"c": 18}\n</tool_response>' in text
    assert text.endswith("<|im_start|>assistant\n[[<think>\nTwo numbers.\n</think>\n\n18 and 3.<|im_end|>]]")


def test_schemas_keep_the_order_in_which_prompts_show_them() -> None:
    city = {"description": "Where.", "type": "string", "default": None}
    kind = {"enum": ["int", None], "default": {"type": "int"}, "type": "object"}
    schema = {"properties": {"city": city, "kind": kind}, "required": ["city"], "type": "object"}
    tool = {"type": "function", "function": {"name": "f", "description": "", "parameters": schema}}
    (read,) = read_trace({"messages": TURNS, "tools": [tool]}, PLACE).shown(()).tools or ()
    assert json.dumps(read.parameters) == json.dumps(schema)


WEIRD = [
    None,
    "",
    " ",
    0,
    -1,
    1.5,
    True,
    float("nan"),
    [],
    {},
    [None],
    [[]],
    {"role": "user"},
    "{",
    "[1]",
    "\ud83d",
    "null",
    b"x",
    10**30,
]


def damaged(value: Any, rng: random.Random) -> Any:
    """The value with one part of it replaced, taken out or written twice."""
    if rng.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return rng.choice(WEIRD)
    copy = dict(value) if isinstance(value, dict) else list(value)
    key = rng.choice(list(copy)) if isinstance(copy, dict) else rng.randrange(len(copy))
    action = rng.random()
    if action < 0.1:
        del copy[key]  # type: ignore[arg-type]
    elif action < 0.2 and isinstance(copy, list):
        copy.append(copy[key])
    else:
        copy[key] = damaged(copy[key], rng)  # type: ignore[index]
    return copy


def test_a_damaged_row_is_read_or_refused_in_words_and_nothing_else() -> None:
    rng, read, refused = random.Random(39), 0, list[str]()
    rows = [*LAYOUTS.values(), {"query": "Who?", "answers": LISTED, "tools": [{**BARE, "parameters": FLAT}]}]
    for _ in range(4000):
        row = rng.choice(rows)
        for _ in range(rng.randint(1, 3)):
            row = damaged(row, rng)
            row = row if isinstance(row, dict) else dict(LAYOUTS["OpenAI"])
        try:
            trace = read_trace(row, PLACE)
        except DataError as error:
            refused += [str(error)]
        else:
            read += 1
            assert trace.turns
            assert len(trace.learnt) == len(trace.turns)
    assert 400 < read < 3000
    assert [words for words in refused if not words.startswith(PLACE)] == []
