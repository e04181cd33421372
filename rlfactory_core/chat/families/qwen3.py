"""The Qwen family: ChatML turns, and tool results in a shared user turn.

- `Qwen3Format` has JSON tool calls in Hermes style. It covers every tokenizer whose own template writes these (Qwen3,
  Qwen3-2507 instruct and thinking, Qwen3-VL, Hermes 3).
- `Qwen25Format` is the same without thinking, and with a system prompt of its own if there is none.
- `Qwen3CoderFormat` has calls in XML, ``<function=…><parameter=…>…`` (Qwen3-Coder, Qwen3.5 and later, Nemotron 3).

Templates with thinking drop or empty (Nemotron) the thinking blocks of assistant turns before the last user message;
Qwen3's also drops the empty block (``thinking=False``) of every turn but the last. Sampled ids are never rewritten
here, so later turns are conditioned on what was really sampled; `proof` checks that nothing else differs.
"""

from __future__ import annotations

import re

from rlfactory_core.chat.families.hermes import HermesFormat
from rlfactory_core.chat.parsers.json_calls import HERMES
from rlfactory_core.chat.parsers.tagged import parse_qwen3_coder
from rlfactory_core.chat.parsers.turn import Parser
from rlfactory_core.chat.template import TemplateFormat


class Qwen3Format(HermesFormat):
    """Qwen3: ChatML turns, calls as JSON between ``<tool_call>`` tags."""

    name = "qwen3"
    marks: tuple[str, ...] = ("<|im_start|>", "<tool_call>", "<tool_response>", '"arguments"')  # ChatML, calls in JSON
    foreign: tuple[str, ...] = ("<function=",)  # of Qwen3-Coder's XML
    stops = ("<|im_end|>", "<|endoftext|>")
    block = re.compile(r"(?<=<\|im_start\|>assistant\n)<think>\n.*?</think>\n\n", re.DOTALL)
    parser = Parser((HERMES,))
    find_stops = TemplateFormat.find_stops


QWEN3_TEMPLATE = """\
{%- macro turn(role, body) -%}{{ '<|im_start|>' + role + '\\n' + body + '<|im_end|>\\n' }}{%- endmacro -%}
{%- set first = messages[0].content if messages[0].role == 'system' else none -%}
{%- if tools -%}
    {%- set ns = namespace(body=(first + '\\n\\n') if first is not none else '') -%}
    {%- set ns.body = ns.body + '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n\
You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' -%}
    {%- for tool in tools -%}{%- set ns.body = ns.body + '\\n' + (tool | tojson) -%}{%- endfor -%}
    {{- turn('system', ns.body + '\\n</tools>\\n\\nFor each function call, return a json object with function name \
and arguments within <tool_call></tool_call> XML tags:\\n<tool_call>\\n\
{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call>') -}}
{%- elif first is not none -%}
    {{- turn('system', first) -}}
{%- endif -%}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else '' -%}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) -%}
        {{- turn(message.role, content) -}}
    {%- elif message.role == 'assistant' -%}
        {%- set ns = namespace(body=content) -%}
        {%- for call in message.tool_calls or [] -%}
            {%- set call = call.function or call -%}
            {%- set arguments = call.arguments if call.arguments is string else call.arguments | tojson -%}
            {%- set ns.body = ns.body + ('\\n' if ns.body else '') + '<tool_call>\\n{"name": "' + call.name
                + '", "arguments": ' + arguments + '}\\n</tool_call>' -%}
        {%- endfor -%}
        {{- turn('assistant', ns.body) -}}
    {%- elif message.role == 'tool' -%}
        {{- '<|im_start|>user' if loop.first or loop.previtem.role != 'tool' else '' -}}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' -}}
        {{- '<|im_end|>\\n' if loop.last or loop.nextitem.role != 'tool' else '' -}}
    {%- endif -%}
{%- endfor -%}
{{- '<|im_start|>assistant\\n' if add_generation_prompt else '' -}}
"""


class Qwen25Format(Qwen3Format):
    """Qwen2.5: as Qwen3, without thinking."""

    name = "qwen2.5"
    marks = (*Qwen3Format.marks, "You are Qwen, created by Alibaba Cloud")
    foreign = (*Qwen3Format.foreign, "<think>")


class Qwen3CoderFormat(Qwen3Format):
    """Qwen3-Coder and Qwen3.5: calls as parameters in tags."""

    name = "qwen3-coder"
    marks = ("<|im_start|>", "<tool_call>", "<function=", "<parameter=")
    foreign = ()
    block = re.compile(r"(?<=<\|im_start\|>assistant\n)<think>.*?</think>\n*", re.DOTALL)
    parser = parse_qwen3_coder
    calls_text = TemplateFormat.calls_text
