"""Chat templates in Mistral's published layouts, written for the tests: Mistral's own are in no package.

`MISTRAL_V3` has the layout of Mistral-7B-Instruct-v0.3: calls as one JSON list with ids, tools before the last user
message, the system message within it, results as text between JSON; `MISTRAL_V3_TEKKEN` that of Mistral-Nemo, without
SentencePiece's spaces. `MISTRAL_V13` has that of Mistral-Small-3.2 and Devstral: a system turn, tools once,
``NAME[ARGS]{…}``.
"""

from __future__ import annotations


def mistral_v3(space: str) -> str:
    return (
        """\
{%- set system = messages[0].content if messages[0].role == 'system' else none -%}
{%- set rest = messages[1:] if system is not none else messages -%}
{%- set users = rest | selectattr('role', 'equalto', 'user') | list -%}
{%- for message in rest | rejectattr('role', 'equalto', 'tool') | selectattr('tool_calls', 'undefined') -%}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') -}}
    {%- endif -%}
{%- endfor -%}
{{- bos_token -}}
{%- for message in rest -%}
    {%- if message.role == 'user' -%}
        {%- if tools and message == users[-1] -%}
            {{- '[AVAILABLE_TOOLS]~[' -}}
            {%- for tool in tools -%}
                {{- '{"type": "function", "function": ' + (tool.function | tojson) + '}' -}}
                {{- ', ' if not loop.last else '][/AVAILABLE_TOOLS]' -}}
            {%- endfor -%}
        {%- endif -%}
        {{- '[INST]~' + (system + '\\n\\n' if loop.last and system is not none else '') -}}
        {{- message.content + '[/INST]' -}}
    {%- elif message.tool_calls is defined -%}
        {{- '[TOOL_CALLS]~[' -}}
        {%- for call in message.tool_calls -%}
            {%- if call.id | length != 9 -%}
                {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') -}}
            {%- endif -%}
            {{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' -}}
            {{- ', ' if not loop.last else ']' + eos_token -}}
        {%- endfor -%}
    {%- elif message.role == 'assistant' -%}
        {{- '~' + message.content + eos_token -}}
    {%- elif message.role == 'tool' -%}
        {%- if message.tool_call_id | length != 9 -%}
            {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') -}}
        {%- endif -%}
        {{- '[TOOL_RESULTS]~{"content": ' + message.content + ', "call_id": "' + message.tool_call_id + '"}' -}}
        {{- '[/TOOL_RESULTS]' -}}
    {%- else -%}
        {{- raise_exception('Only user, assistant and tool roles are supported') -}}
    {%- endif -%}
{%- endfor -%}
"""
    ).replace("~", space)


MISTRAL_V3 = mistral_v3(space=" ")
MISTRAL_V3_TEKKEN = mistral_v3(space="")
MISTRAL_V13 = """\
{{- bos_token -}}
{%- if messages[0].role == 'system' -%}
    {{- '[SYSTEM_PROMPT]' + messages[0].content + '[/SYSTEM_PROMPT]' -}}
    {%- set messages = messages[1:] -%}
{%- else -%}
    {{- '[SYSTEM_PROMPT]You are a helpful assistant. Today is ' + strftime_now('%Y-%m-%d') + '.[/SYSTEM_PROMPT]' -}}
{%- endif -%}
{%- if tools -%}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' -}}{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}
        {{- '[INST]' + message.content + '[/INST]' -}}
    {%- elif message.role == 'assistant' -%}
        {{- message.content -}}
        {%- for call in message.tool_calls or [] -%}
            {%- set arguments = call.function.arguments -%}
            {{- '[TOOL_CALLS]' + call.function.name -}}
            {{- '[ARGS]' + (arguments if arguments is string else arguments | tojson) -}}
        {%- endfor -%}
        {{- eos_token -}}
    {%- elif message.role == 'tool' -%}
        {{- '[TOOL_RESULTS]' + message.content + '[/TOOL_RESULTS]' -}}
    {%- else -%}
        {{- raise_exception('Only user, assistant, system and tool roles are supported, got ' + message.role + '.') -}}
    {%- endif -%}
{%- endfor -%}
"""
