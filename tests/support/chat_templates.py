"""Chat templates in published layouts, for what trl does not bring.

`MISTRAL_V3` has the layout of Mistral-7B-Instruct-v0.3: calls as one JSON list with ids, tools before the last user
message, the system message within it, results as text between JSON. `MISTRAL_V13` has that of Mistral-Small-3.2 and
Devstral: a system turn, tools once, ``NAME[ARGS]{…}``. (mistral-common brings Mistral's own; these need no package.)
`QWEN3_CODER` has that of Qwen3-Coder-Instruct, `HERMES` that of Hermes 2 Pro and 3 (arguments before the name, results
as JSON in turns of their own), `DEEPSEEK_V31` that of DeepSeek-V3.1. `PLAIN_CHATML` knows no system message, tools,
calls or results, and wants the roles to alternate.
"""
# ruff: noqa: RUF001 - the bars in DeepSeek's tokens look like others

from __future__ import annotations

MISTRAL_V3 = """\
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
            {{- '[AVAILABLE_TOOLS] [' -}}
            {%- for tool in tools -%}
                {{- '{"type": "function", "function": ' + (tool.function | tojson) + '}' -}}
                {{- ', ' if not loop.last else '][/AVAILABLE_TOOLS]' -}}
            {%- endfor -%}
        {%- endif -%}
        {{- '[INST] ' + (system + '\\n\\n' if loop.last and system is not none else '') -}}
        {{- message.content + '[/INST]' -}}
    {%- elif message.tool_calls is defined -%}
        {{- '[TOOL_CALLS] [' -}}
        {%- for call in message.tool_calls -%}
            {%- if call.id | length != 9 -%}
                {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') -}}
            {%- endif -%}
            {{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' -}}
            {{- ', ' if not loop.last else ']' + eos_token -}}
        {%- endfor -%}
    {%- elif message.role == 'assistant' -%}
        {{- ' ' + message.content + eos_token -}}
    {%- elif message.role == 'tool' -%}
        {%- if message.tool_call_id | length != 9 -%}
            {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') -}}
        {%- endif -%}
        {{- '[TOOL_RESULTS] {"content": ' + message.content + ', "call_id": "' + message.tool_call_id + '"}' -}}
        {{- '[/TOOL_RESULTS]' -}}
    {%- else -%}
        {{- raise_exception('Only user, assistant and tool roles are supported') -}}
    {%- endif -%}
{%- endfor -%}
"""
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
DEEPSEEK_V31 = """\
{%- set ns = namespace(open=false) -%}
{{- bos_token -}}
{%- for message in messages if message.role == 'system' -%}{{- message.content -}}{%- endfor -%}
{%- if tools -%}
    {{- '\\n\\n## Tools\\nYou have access to the following tools:\\n' -}}
    {%- for tool in tools -%}
        {{- '\\n### ' + tool.function.name + '\\n' + (tool.function | tojson) + '\\n' -}}
    {%- endfor -%}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}
        {{- '<｜User｜>' + message.content -}}
        {%- set ns.open = true -%}
    {%- elif message.role == 'assistant' -%}
        {{- '<｜Assistant｜></think>' if ns.open else '' -}}
        {%- set ns.open = false -%}
        {{- (message.content or '').split('</think>')[-1] -}}
        {%- for call in message.tool_calls or [] -%}
            {{- '<｜tool▁calls▁begin｜>' if loop.first else '' -}}
            {{- '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' + call.function.arguments -}}
            {{- '<｜tool▁call▁end｜>' -}}
            {{- '<｜tool▁calls▁end｜>' if loop.last else '' -}}
        {%- endfor -%}
        {{- '<｜end▁of▁sentence｜>' -}}
    {%- elif message.role == 'tool' -%}
        {{- '<｜tool▁output▁begin｜>' + message.content + '<｜tool▁output▁end｜>' -}}
        {%- set ns.open = false -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt and ns.open -%}
    {{- '<｜Assistant｜>' + ('<think>' if thinking is defined and thinking else '</think>') -}}
{%- endif -%}
"""
PLAIN_CHATML = """\
{%- for message in messages -%}
    {%- if message.role != ("assistant" if loop.index0 % 2 else "user") -%}
        {{- raise_exception('Only user and assistant roles are supported, one after the other.') -}}
    {%- endif -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{{- '<|im_start|>assistant\\n' if add_generation_prompt else '' -}}
"""

QWEN3_CODER = """\
{%- macro turn(role, body) -%}{{ '<|im_start|>' + role + '\\n' + body + '<|im_end|>\\n' }}{%- endmacro -%}
{%- set told = namespace(body=messages[0].content if messages[0].role == 'system' else 'You are Qwen.') -%}
{%- for tool in tools or [] -%}
    {%- set told.body = told.body + '\\n<function>\\n<name>' + tool.function.name + '</name>\\n<description>'
        + (tool.function.description | trim) + '</description>\\n</function>' -%}
{%- endfor -%}
{{- turn('system', told.body) -}}
{%- for message in messages -%}
    {%- if message.role == 'assistant' and message.tool_calls -%}
        {{- '<|im_start|>assistant' -}}
        {{- '\\n' + message.content | trim + '\\n' if message.content | trim else '' -}}
        {%- for call in message.tool_calls -%}
            {{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' -}}
            {%- for name, value in call.function.arguments | items -%}
                {{- '<parameter=' + name + '>\\n' + (value | string) + '\\n</parameter>\\n' -}}
            {%- endfor -%}
            {{- '</function>\\n</tool_call>' -}}
        {%- endfor -%}
        {{- '<|im_end|>\\n' -}}
    {%- elif message.role in ['user', 'assistant'] -%}
        {{- turn(message.role, message.content) -}}
    {%- elif message.role == 'tool' -%}
        {{- '<|im_start|>user\\n' if loop.previtem.role != 'tool' else '' -}}
        {{- '<tool_response>\\n' + message.content + '\\n</tool_response>\\n' -}}
        {{- '<|im_end|>\\n' if loop.last or loop.nextitem.role != 'tool' else '' -}}
    {%- endif -%}
{%- endfor -%}
{{- '<|im_start|>assistant\\n' if add_generation_prompt else '' -}}
"""
HERMES = """\
{%- if tools -%}
    {{- '<|im_start|>system\\nHere are the available tools: <tools>' -}}
    {%- for tool in tools -%}{{- tool | tojson -}}{%- endfor -%}
    {{- '</tools> <tool_call>\\n{"name": <function-name>, "arguments": <args-dict>}\\n</tool_call><|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'assistant' and message.tool_calls is defined -%}
        {{- '<|im_start|>assistant' -}}
        {%- for call in message.tool_calls -%}
            {{- '\\n<tool_call>\\n{ "arguments": ' + (call.function.arguments | tojson) -}}
            {{- ', "name": "' + call.function.name + '"}\\n</tool_call> ' -}}
        {%- endfor -%}
        {{- '<|im_end|>\\n' -}}
    {%- elif message.role == 'tool' -%}
        {{- '<|im_start|>tool\\n<tool_response>\\n{"name": "' + message.name -}}
        {{- '", "content": ' + (message.content | tojson) + '}\\n</tool_response> <|im_end|>\\n' -}}
    {%- else -%}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{{- '<|im_start|>assistant\\n' if add_generation_prompt else '' -}}
"""
