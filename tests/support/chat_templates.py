"""Chat templates in published layouts, for what neither trl nor `rlfactory_devkit` brings.

`MISTRAL_V3` has the layout of Mistral-7B-Instruct-v0.3: calls as one JSON list with ids, tools before the last user
message, the system message within it, results as text between JSON. (mistral-common brings Mistral's own; this needs no
package.) `HERMES` has that of Hermes 2 Pro and 3 (arguments before the name, results as JSON in turns of their own).
`KIMI_THINKING` has that of Kimi-K2-Thinking, which empties the thinking blocks of turns up to the last answer.
`PHI4_MINI_TEMPLATE` has that of Phi-4-mini-instruct, which shows tools only within a system message and ends a whole
conversation with the end-of-text token. `PLAIN_CHATML` knows no system message, tools, calls or results, and wants the
roles to alternate.
"""

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
PLAIN_CHATML = """\
{%- for message in messages -%}
    {%- if message.role != ("assistant" if loop.index0 % 2 else "user") -%}
        {{- raise_exception('Only user and assistant roles are supported, one after the other.') -}}
    {%- endif -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
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
PHI4_MINI_TEMPLATE = """\
{%- for message in messages -%}
    {%- set tools = message.tools -%}
    {{- '<|' + message.role + '|>' + message.content + ('<|tool|>' + tools + '<|/tool|>' if tools else '') -}}
    {{- '<|end|>' -}}
{%- endfor -%}
{{- '<|assistant|>' if add_generation_prompt else eos_token -}}
"""
KIMI_THINKING = """\
{%- set ns = namespace(last=-1) -%}
{%- for message in messages -%}
    {%- if message.role == 'assistant' and not message.tool_calls -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{{- '<|im_system|>tool_declare<|im_middle|>' + (tools | tojson) + '<|im_end|>' if tools else '' -}}
{%- if messages[0].role != 'system' -%}
    {{- '<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- set kind = message.role if message.role in ['user', 'assistant'] else 'system' -%}
    {{- '<|im_' + kind + '|>' + (message.name or message.role) + '<|im_middle|>' -}}
    {%- if message.role == 'assistant' -%}
        {{- '<think>' + (message.reasoning_content or '' if loop.index0 > ns.last else '') + '</think>' -}}
    {%- elif message.role == 'tool' -%}
        {{- '## Return of ' + message.tool_call_id + '\\n' -}}
    {%- endif -%}
    {{- message.content -}}
    {%- if message.tool_calls -%}
        {{- '<|tool_calls_section_begin|>' -}}
        {%- for call in message.tool_calls -%}
            {%- set arguments = call.function.arguments -%}
            {{- '<|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' -}}
            {{- (arguments if arguments is string else arguments | tojson) + '<|tool_call_end|>' -}}
        {%- endfor -%}
        {{- '<|tool_calls_section_end|>' -}}
    {%- endif -%}
    {{- '<|im_end|>' -}}
{%- endfor -%}
{{- '<|im_assistant|>assistant<|im_middle|>' if add_generation_prompt else '' -}}
"""
