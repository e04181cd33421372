"""The chat template that we give to tokenizers of our own: Qwen3's turns and Hermes-style tool calls, no thinking.

Written for the message kinds of `rlfactory_core.types`; for these it renders the same text as the template that Qwen
publishes with its 2507 instruct models (a test compares the two).
"""

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
