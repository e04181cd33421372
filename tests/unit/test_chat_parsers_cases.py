"""Agreement with the recorded cases of other systems' parsers, and every case in which we differ on purpose."""

from __future__ import annotations

import pytest
from parser_cases import FOLDER, Case, read_cases

from rlfactory_core.chat.families.deepseek import parse_deepseek
from rlfactory_core.chat.families.glm import parse_glm
from rlfactory_core.chat.families.gpt_oss import parse_harmony
from rlfactory_core.chat.families.hermes import parse_fallback
from rlfactory_core.chat.families.kimi import parse_kimi
from rlfactory_core.chat.families.lists import parse_lfm2, parse_pythonic
from rlfactory_core.chat.families.llama3 import parse_llama3
from rlfactory_core.chat.families.mistral import parse_mistral
from rlfactory_core.chat.parsers.json_calls import parse_hermes
from rlfactory_core.chat.parsers.tagged import parse_qwen3_coder
from rlfactory_core.types import Message

PARSERS = {
    "hermes": parse_fallback,
    "hermes_qwen": parse_fallback,
    "auto": parse_fallback,
    "qwen3_coder": parse_qwen3_coder,
    "llama3_json": parse_llama3,
    "llama3_mixed": parse_llama3,
    "mistral": parse_mistral,
    "deepseek_v3": parse_deepseek,
    "glm45": parse_glm,
    "glm47": parse_glm,
    "gpt_oss": parse_harmony,
    "kimi_k2": parse_kimi,
    "pythonic": parse_pythonic,
    "lfm2": parse_lfm2,
}
# The peer of this file guesses the syntax from the text; a chat format knows its own.
AUTO = {"auto-0": parse_mistral, "auto-5": parse_llama3, "auto-13": parse_llama3}

UNKNOWN_TOOL = "a call of an unknown tool is a call: the tool manager answers it with the nearest names"
NO_OBJECT = "arguments that are no object are an error: no tool takes them"
REFUSED = "the text of a malformed call is in its error, not in the content"
UNCLOSED = "a call that is not closed is an error: what is there may be half a value"
ESCAPED = "JSON whose quotes are escaped is no JSON: it stays text, and validation says which type was wanted"
WRITTEN_BREAK = "a written-out \\n behind the name, and between tags, is text that breaks the call"
REASONING_TAG = "a tag of no known family is content as it stands"
BROKEN_WITHIN = "a broken call with a whole one inside is one error"
LATER_TEXT = "text behind a call stays content"
STRAY_END = "the tokens around all calls are left out of the content, wherever they stand"
WITHIN_TEXT = "a bare list of calls within other text is content: it may be an example"
BOTH_CALLS = "the source's streamed deltas merge both calls into one"
HELD_BACK = "the source's streaming holds the bracket back"

# What is found instead: (name, arguments or None for an error) of each call, and the content where it differs.
DIFFERENT: dict[str, tuple[str, list[tuple[str, object]], str | None]] = {
    # not contested: the rows in which we do not do what the source's own test asks for
    "glm45-7": (UNKNOWN_TOOL, [("invalid_func", {"city": "Beijing"})], None),
    "glm47-6": (UNKNOWN_TOOL, [("invalid_func", {"city": "Beijing"})], None),
    "glm47-20": (UNKNOWN_TOOL, [("nonexistent_function", {"param": "value"})], None),
    "llama3_mixed-10": (NO_OBJECT, [("inspect", None)], None),
    "llama3_mixed-11": (NO_OBJECT, [("inspect", None)], None),
    "kimi_k2-0": (STRAY_END, [], 'invalid_tool:0<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>'),
    "other-4": (LATER_TEXT, [("get_weather", {"city": "Paris"}), ("search", {"query": "food"})], "Some text"),
    "other-12": (UNKNOWN_TOOL, [("unknown_function", {"arg": "value"})], None),
    "pythonic-6": (
        WITHIN_TEXT,
        [("get_weather", {"location": "Berlin"})],
        "and [search(query='restaurants')]",
    ),
    "pythonic-11": (HELD_BACK, [], "Let's try this: ["),
    "pythonic-20": (BOTH_CALLS, [("get_weather", {"location": "Tokyo", "data": [1, 2, 3]})] * 2, None),
    "mistral-11": (REFUSED, [("get_weather", None)], ""),
    "mistral-17": (REFUSED, [("func", None)], ""),
    # contested: our choice, where it is not the source's
    "hermes-1": (
        REASONING_TAG,
        [("search", {})],
        "<tool_call_reasoning>I need to search for this</tool_call_reasoning>",
    ),
    "qwen3_coder-3": (UNCLOSED, [("get_current_weather", None)], None),
    "llama3_json-0": (BROKEN_WITHIN, [("get_weather", None)], None),
    "llama3_mixed-9": (NO_OBJECT, [("inspect", None)], None),
    "glm45-1": (WRITTEN_BREAK, [("todo_write\\n", None)], None),
    "glm45-3": (WRITTEN_BREAK, [("todo_write\\n", None)], None),
    "glm45-5": (WRITTEN_BREAK, [("todo_write\\n", None)], None),
    "glm47-1": (ESCAPED, [("todo_write", str)], None),
    "glm47-3": (ESCAPED, [("todo_write", str)], None),
    "glm47-5": (ESCAPED, [("todo_write", str)], None),
    "glm47-19": (UNCLOSED, [("get_weather", None)], None),
    "kimi_k2-2": (UNCLOSED, [("get_weather", None)], None),
    "kimi_k2-4": (UNCLOSED, [("get_weather", {"city": "Paris"}), ("get_tourist_attractions", None)], None),
    "pythonic-3": (
        WITHIN_TEXT,
        [],
        "Here's a tool call: [get_weather(location='New York', unit='celsius')]",
    ),
    "pythonic-13": (WITHIN_TEXT, [], "Here's a call: [get_weather(location='Tokyo', data=[1, 2, 3])]"),
    "pythonic-15": (WITHIN_TEXT, [], "Let me check the weather: [get_weather(location='Paris')]"),
    "pythonic-19": (WITHIN_TEXT, [], "This is some text before [get_weather(location='London')]"),
    "gpt_oss-0": (LATER_TEXT, [("read_file", {"files": []})], "This text should be truncated."),
    "gpt_oss-1": (LATER_TEXT, [("read_file", {})], "This is normal text that should be ignored."),
}


def cases(contested: bool, family: str = "") -> list[object]:
    if not FOLDER.is_dir():
        return [pytest.param(None, marks=pytest.mark.skip(reason="the recorded cases are not on this machine"))]
    rows = [case for case in read_cases() if case.family in PARSERS and case.family.startswith(family)]
    return [
        pytest.param(case, id=case.name)
        for case in rows
        if case.contested is contested and (case.asserted or contested)  # the others need not to crash: the fuzz test
    ]


def parse(case: Case) -> Message:
    return AUTO.get(case.name, PARSERS[case.family])(case.text, case.tools)


def agrees(case: Case, message: Message) -> bool:
    calls = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls if call.error is None]
    return calls == case.calls and (case.content is None or message.content == case.content.strip())


@pytest.mark.parametrize("case", cases(contested=False))
def test_agrees_with_what_no_peer_contests(case: Case) -> None:
    message = parse(case)
    if case.name in DIFFERENT:
        differs_as_listed(case, message)
    else:
        assert agrees(case, message), message


@pytest.mark.parametrize("case", cases(contested=True))
def test_chooses_where_peers_disagree(case: Case) -> None:
    message = parse(case)
    if case.name in DIFFERENT:
        differs_as_listed(case, message)
    else:
        assert agrees(case, message), message


def differs_as_listed(case: Case, message: Message) -> None:
    reason, calls, content = DIFFERENT[case.name]
    assert not agrees(case, message), f"{case.name} is listed as different ({reason}) and is not"
    found = [(call.name, call.arguments) for call in message.tool_calls]
    for (name, arguments), (expected_name, expected) in zip(found, calls, strict=True):
        assert name == expected_name, reason
        if expected is str:
            assert arguments is not None
            assert all(isinstance(value, str) for value in arguments.values()), reason
        else:
            assert arguments == expected, reason
    assert message.content == (content if content is not None else (case.content or "").strip()), reason


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the recorded cases are not on this machine")
def test_every_listed_difference_is_a_case() -> None:
    assert set(DIFFERENT) | set(AUTO) <= {case.name for case in read_cases()}


@pytest.mark.parametrize("case", cases(contested=False, family="hermes"))
def test_hermes_itself_reads_json_only(case: Case) -> None:
    """Training rewards no other syntax than the one that the model's prompt shows."""
    message = parse_hermes(case.text, case.tools)
    calls = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls if call.error is None]
    in_json = [call for call in case.calls if f'"name": "{call["name"]}"' in case.text]
    assert calls == in_json
