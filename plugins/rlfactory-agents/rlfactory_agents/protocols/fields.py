"""Which fields of a request are understood. One that carries conversation and is not understood is refused: the model
would be asked something else than the agent meant. The others are counted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from rlfactory_agents.exchange import RequestError

_CARRIES = re.compile(
    r"thread|conversation|session|history|previous|memory|messages?\b|context|document|attachment|file|system|prompt|"
    r"instruction|template|function|tool|resource|assistant|continu|prefix|prefill|suffix|input|plugin|search|"
    r"transform|container|background|audio|image|video"
)
"""Names of fields, of protocols to come, that may say what the model is to read."""
_PARTS = {"role", "content", "text", "parts", "messages"}  # of which conversations are made


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one protocol's requests.

    Args:
        taken: that have their effect.
        idle: that change neither what the model reads nor what it samples, such as labels for accounts.
        counted: as all that are not known, although the name or the value looks like conversation.
        refused: what to do instead, by field.
        neutral: by field, the values that are followed, because they ask for nothing else than what is done.
    """

    taken: AbstractSet[str]
    idle: AbstractSet[str]
    counted: AbstractSet[str]
    refused: Mapping[str, str]
    neutral: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def without_effect(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """The fields that are set, and have no effect.

        Raises:
            RequestError: one carries conversation, and is not understood.
        """
        found = []
        for name, value in body.items():
            if name in self.taken or name in self.idle or value in (None, "", [], {}):
                continue
            if value in self.neutral.get(name, ()) or (name in self.refused and value is False):
                continue
            if name in self.refused:
                raise RequestError(f"{name} is not supported here: {self.refused[name]}", code="unsupported_field")
            if name not in self.counted and (_CARRIES.search(name) or _is_conversation(value)):
                raise RequestError(
                    f"{name} is not known here, and may say what the model is to read. Leave it out, and send the "
                    "conversation in the fields that are known.",
                    code="unsupported_field",
                )
            found.append(name)
        return tuple(found)


def _is_conversation(value: Any) -> bool:
    """Whether a value has messages, or parts of them, in it."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if _PARTS & each.keys():
                return True
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return False


COUNTED = frozenset(
    [
        *("tool_choice", "parallel_tool_calls", "max_tool_calls", "tool_stream", "function_call", "prompt_logprobs"),
        *("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"),
        *("reasoning", "thinking", "chat_template_kwargs", "context_management", "moderation", "use_beam_search"),
    ]
)
"""How the model samples and answers, also in extensions by vLLM, SGLang and others: fields whose name or value looks
like conversation."""

IDLE = frozenset(
    [
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_options"),
        *("prompt_cache_retention", "cache_control", "cache_salt", "priority", "request_id", "session_id", "timeout"),
        *("prediction", "provider", "usage", "speed"),
    ]
)

ALL_OF_IT = "send the whole conversation in each request."
NO_SERVER_TOOLS = "no tools run on this server. Run them in the agent, and offer them as functions."
"""What to do instead."""
