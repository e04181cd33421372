"""The parsers of model text with well-written calls and hostile pieces for each: shared by tests and the benchmark."""
# ruff: noqa: RUF001 - the bars in DeepSeek's tokens look like others

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory_core.chat.families.deepseek import parse_deepseek
from rlfactory_core.chat.families.gemma4 import parse_gemma4
from rlfactory_core.chat.families.glm import parse_glm
from rlfactory_core.chat.families.gpt_oss import parse_harmony
from rlfactory_core.chat.families.hermes import parse_fallback
from rlfactory_core.chat.families.kimi import parse_kimi
from rlfactory_core.chat.families.lists import parse_lfm2, parse_pythonic, parse_xlam
from rlfactory_core.chat.families.llama3 import parse_llama3, parse_llama4
from rlfactory_core.chat.families.mistral import parse_mistral
from rlfactory_core.chat.families.xml_calls import parse_dsml, parse_hunyuan, parse_minimax, parse_seed_oss
from rlfactory_core.chat.parsers.json_calls import parse_hermes
from rlfactory_core.chat.parsers.tagged import parse_qwen3_coder
from rlfactory_core.types import Message, ToolSpec


@dataclass(frozen=True)
class Syntax:
    """One family's parser.

    Args:
        call: writes a call whose only argument is ``text``; its value stands in the call as it is given.
        pieces: what its calls are made of, and what breaks them; repeated they are hostile.
        quoted: whether a text stands in quotes, as JSON.
        after_text: whether a call may follow text.
    """

    parse: Callable[..., Message]
    call: Callable[[str, str], str]
    pieces: tuple[str, ...]
    quoted: bool = True
    after_text: bool = True

    def write(self, name: str, text: str) -> str:
        """A call that is right; ``text`` holds no tags."""
        return self.call(name, json.dumps(text, ensure_ascii=False) if self.quoted else text)


COMMON = (
    "<think>",
    "</think>",
    "[",
    "{",
    '{"name":',
    '{"name": "a", "arguments": {',
    '"',
    '\\"',
    "\\",
    " \n",
    "<",
    "a ",
)


def _tagged(name: str, value: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"text": {value}}}}}\n</tool_call>'


def _xml(name: str, value: str) -> str:
    return f"<tool_call>\n<function={name}>\n<parameter=text>\n{value}\n</parameter>\n</function>\n</tool_call>"


def _llama(name: str, value: str) -> str:
    return f'<|python_tag|>{{"name": "{name}", "parameters": {{"text": {value}}}}}'


def _glm(name: str, value: str) -> str:
    return f"<tool_call>{name}\n<arg_key>text</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>"


def _mistral(name: str, value: str) -> str:
    return f'[TOOL_CALLS]{name}[ARGS]{{"text": {value}}}'


def _deepseek(name: str, value: str) -> str:
    return f'<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{{"text": {value}}}\n```<｜tool▁call▁end｜>'


def _harmony(name: str, value: str) -> str:
    header = f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    return f'{header}{{"text": {value}}}<|call|>'


def _kimi(name: str, value: str) -> str:
    head = f"<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>"
    return f'{head}{{"text": {value}}}<|tool_call_end|>'


def _pythonic(name: str, value: str) -> str:
    return f"<|python_start|>[{name}(text={value})]<|python_end|>"


def _lfm2(name: str, value: str) -> str:
    return f"<|tool_call_start|>[{name}(text={value})]<|tool_call_end|>"


def _minimax(name: str, value: str) -> str:
    parameter = f'<parameter name="text">{value}</parameter>'
    return f'<minimax:tool_call>\n<invoke name="{name}">\n{parameter}\n</invoke>\n</minimax:tool_call>'


def _dsml(name: str, value: str) -> str:
    parameter = f'<｜DSML｜parameter name="text" string="true">{value}</｜DSML｜parameter>'
    return f'<｜DSML｜tool_calls>\n<｜DSML｜invoke name="{name}">\n{parameter}</｜DSML｜invoke>\n</｜DSML｜tool_calls>'


def _llama4(name: str, value: str) -> str:
    return f'<|python_start|><|python_end|>{{"name": "{name}", "parameters": {{"text": {value}}}}}'


def _xlam(name: str, value: str) -> str:
    return f'[{{"name": "{name}", "arguments": {{"text": {value}}}}}]'


def _gemma4(name: str, value: str) -> str:
    return f'<|tool_call>call:{name}{{text:<|"|>{value}<|"|>}}<tool_call|>'


def _hunyuan(name: str, value: str) -> str:
    argument = f"<arg_key>text</arg_key>\n<arg_value>{value}</arg_value>"
    call = f"<tool_calls>\n<tool_call>{name}<tool_sep>\n{argument}\n</tool_call>\n</tool_calls>"
    return call.replace(">", ":opensource>")


def _seed_oss(name: str, value: str) -> str:
    body = f"<function={name}>\n<parameter=text>{value}</parameter>\n</function>"
    return f"<seed:tool_call>\n{body}\n</seed:tool_call>"


_TAGGED = ("<tool_call>", "</tool_call>", "<tool_call>\n")
_FUNCTION = ("<function=", "<function=echo>", "</function>")
_XML = (*_TAGGED, *_FUNCTION, "<parameter=", "<parameter=text>", "</parameter>", "<tool_call><function=echo>")
SYNTAXES: Mapping[str, Syntax] = {
    "hermes": Syntax(parse_hermes, _tagged, (*_TAGGED, '<tool_call>{"a":', '<tool_call>["</tool_call>')),
    "fallback": Syntax(
        parse_fallback, _tagged, (*_XML, "[Calling tool: echo(", "[Calling tool:", ")]", "<function=a>{")
    ),
    "qwen3_coder": Syntax(parse_qwen3_coder, _xml, (*_XML, "<parameter=text>[</parameter>"), False),
    "llama3": Syntax(
        parse_llama3,
        _llama,
        (*_FUNCTION, "<|python_tag|>", ";", '{"name": "echo", "parameters": {}}', '{"name": "echo", "parameters": {'),
    ),
    "mistral": Syntax(
        parse_mistral,
        _mistral,
        (
            "[TOOL_CALLS]",
            "[ARGS]",
            "[CALL_ID]",
            "[TOOL_CALLS] [",
            "[TOOL_CALLS]echo[ARGS]{",
            "[THINK]",
            "[/THINK]",
            "]",
        ),
    ),
    "deepseek": Syntax(
        parse_deepseek,
        _deepseek,
        (
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
            "\n```json\n",
            "```",
        ),
    ),
    "glm": Syntax(
        parse_glm,
        _glm,
        (
            *_TAGGED,
            "<tool_call>echo",
            "<arg_key>",
            "</arg_key>",
            "<arg_value>",
            "</arg_value>",
            "<tool_call>echo<arg_key>text</arg_key><arg_value>",
            "<arg_key>text</arg_key><arg_value>[</arg_value>",
        ),
        quoted=False,
    ),
    "harmony": Syntax(
        parse_harmony,
        _harmony,
        (
            "<|channel|>",
            "<|message|>",
            "<|start|>",
            "<|end|>",
            "<|call|>",
            "<|return|>",
            "<|constrain|>json",
            " to=functions.echo",
            "<|channel|>analysis<|message|>",
            "<|channel|>final<|message|>x<|end|>",
            "<|channel|>commentary to=functions.echo <|message|>{",
        ),
    ),
    "minimax": Syntax(
        parse_minimax,
        _minimax,
        (
            "<minimax:tool_call>",
            "</minimax:tool_call>",
            '<invoke name="echo">',
            "</invoke>",
            '<parameter name="text">',
            "</parameter>",
        ),
        quoted=False,
    ),
    "dsml": Syntax(
        parse_dsml,
        _dsml,
        (
            "<｜DSML｜function_calls>",
            "<｜DSML｜tool_calls>",
            "</｜DSML｜tool_calls>",
            '<｜DSML｜invoke name="echo">',
            "</｜DSML｜invoke>",
            '<｜DSML｜parameter name="text" string="false">[',
            "</｜DSML｜parameter>",
        ),
        quoted=False,
    ),
    "hunyuan": Syntax(
        parse_hunyuan,
        _hunyuan,
        (
            *("<tool_calls:opensource>", "</tool_calls:opensource>", "<tool_call:opensource>echo"),
            *("<tool_sep:opensource>", "</tool_call:opensource>", "<think:opensource>", "</think:opensource>"),
            *("<arg_key:opensource>text</arg_key:opensource>", "<arg_value:opensource>[", "</arg_value:opensource>"),
            "<tool_calls:opensource><tool_call:opensource>echo<tool_sep:opensource>",
        ),
        quoted=False,
    ),
    "seed_oss": Syntax(
        parse_seed_oss,
        _seed_oss,
        ("<seed:tool_call>", "</seed:tool_call>", *_FUNCTION, "<parameter=text>", "</parameter>", "<seed:think>"),
        quoted=False,
    ),
    "gemma4": Syntax(
        parse_gemma4,
        _gemma4,
        (
            *(
                "<|tool_call>",
                "<tool_call|>",
                "call:echo{",
                "text:",
                '<|"|>',
                ",",
                "}",
                "true",
                "<|tool_call>call:echo{",
            ),
            *("<|channel>thought", "<channel|>"),
        ),
        quoted=False,
    ),
    "llama4": Syntax(
        parse_llama4,
        _llama4,
        (
            "<|python_start|>",
            "<|python_end|>",
            '{"name": "echo", "parameters": {',
            '{"name": "echo", "parameters": {}}',
            ";",
        ),
    ),
    "xlam": Syntax(
        parse_xlam, _xlam, ('[{"name": "echo", ', '"arguments": {', "}}]", "},", "[{", ",", "]"), after_text=False
    ),
    "kimi": Syntax(
        parse_kimi,
        _kimi,
        (
            "<|tool_calls_section_begin|>",
            "<|tool_call_begin|>",
            "functions.echo:0",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
            "<|tool_calls_section_end|>",
        ),
    ),
    "pythonic": Syntax(
        parse_pythonic,
        _pythonic,
        ("<|python_start|>", "<|python_end|>", "[echo(", "echo(text=", "text='", "'", ")]", "),", "=", "[echo(a={'b':"),
    ),
    "lfm2": Syntax(
        parse_lfm2, _lfm2, ("<|tool_call_start|>", "<|tool_call_end|>", "[echo(", "text='", "'", ")]", "[{", "),")
    ),
}


def hostile(syntax: Syntax, size: int) -> Iterator[tuple[str, str]]:
    """Texts of ``size`` characters, each with a name: what they are made of."""

    def fill(unit: str, head: str = "") -> str:
        return (head + unit * (size // len(unit) + 1))[:size]

    whole = syntax.write("echo", "")
    head = syntax.call("echo", "@").split("@", 1)[0]
    yield "prose", fill("The answer is 42, they say. ")
    yield "whole calls", fill(syntax.write("echo", "x"))
    yield "one call, long text", syntax.write("echo", fill("Zoë said so. ")[: size - len(whole)])
    yield "one call, many lists", syntax.call("echo", "[" + "[]," * ((size - len(whole)) // 3) + "0]")
    yield "one call, deep lists", syntax.call("echo", "[" * (size // 2 - len(whole)) + "]" * (size // 2 - len(whole)))
    yield "thinking, not closed", fill("Let me see. ", thinking_tags(syntax)[0])
    yield "one call, cut in its text", fill("x", head + '"' * syntax.quoted)
    yield "one call, cut in brackets", fill("[", head)
    yield "one call, cut in objects", fill('{"a":', head)
    for unit in (*COMMON, *syntax.pieces):
        yield f"`{_shown(unit)}` repeated", fill(unit)
    for unit in syntax.pieces:
        yield f"a call's beginning, then `{_shown(unit)}` repeated", fill(unit, head)
        yield f"`{_shown(unit)}`, then white space", fill(" \n", unit)
        yield f"`{_shown(unit)}[`, then white space", fill(" \n", f"{unit}[")


def thinking_tags(syntax: Syntax) -> tuple[str, str]:
    """The tags around thinking."""
    for begin, end in (
        ("[THINK]", "[/THINK]"),
        ("<think:opensource>", "</think:opensource>"),
        ("<seed:think>", "</seed:think>"),
        ("<|channel>thought", "<channel|>"),
    ):
        if begin in syntax.pieces:
            return begin, end
    return "<think>", "</think>"


def _shown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("`", "'")


def found(message: Message) -> list[tuple[str, Any]]:
    """Name and arguments (None for an error) of each call."""
    return [(call.name, call.arguments) for call in message.tool_calls]


def tool(**properties: Any) -> ToolSpec:
    """A tool ``f`` with these arguments, by their JSON schemas."""
    return ToolSpec("f", "", {"type": "object", "properties": properties})


def problems(message: Message) -> list[str]:
    """What is wrong with a parser's answer, whatever the text was."""
    found: list[str] = []
    if message.role != "assistant" or message.tool_call_id is not None or message.name is not None:
        found.append("not an assistant's message")
    if [call.id for call in message.tool_calls] != [f"call_{i}" for i in range(len(message.tool_calls))]:
        found.append("ids")
    for call in message.tool_calls:
        if (call.arguments is None) == (call.error is None):
            found.append(f"{call.id}: exactly one of arguments and error")
        if call.error is None and not call.name:
            found.append(f"{call.id}: no name")
        if call.arguments is not None and not _is_json(call.arguments):
            found.append(f"{call.id}: arguments are not JSON")
    return found


def _is_json(arguments: Any) -> bool:
    return isinstance(arguments, dict) and json.loads(json.dumps(arguments, allow_nan=False)) == arguments
