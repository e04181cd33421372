"""Find out which model a server has, and whether it enforces the form of an answer and should.

Some servers accept ``response_format`` and ignore it. So the test asks the model for something that the form excludes.
A server without a reasoning parser enforces the form from the first token, which prevents a reasoning model from
reasoning. Such a server is not asked to enforce the form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rlfactory_core.cache import digest
from rlfactory_core.clients.base import Completion
from rlfactory_core.clients.openai import OpenAIClient
from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.types import Message, SamplingParams
from rlfactory_judge.options import JudgeOptions

_CODE = {"code": 4711}  # no model answers this by itself
_SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "integer", "enum": [4711]}},
    "required": ["code"],
    "additionalProperties": False,
}
_QUESTION = (Message("user", "Is the sky blue? Answer with one word."),)
_CANARY = (
    "Continue: one, two, three,",
    "Question: What is 17 + 25? Answer: 43. Is the answer right? Give a score from 0 to 10.",
    "Name a colour, an animal and a city.",
)
_CANARY_PARAMS = SamplingParams(max_tokens=24, temperature=0.0)
_PASSING = (408, 409, 425, 429)  # statuses, and all from 500 on
_MAX_TOKENS = 512  # usually enough for a reasoning model to answer such a question


def is_passing(error: BackendError) -> bool:
    """Whether the same request may succeed later. An error without a status is a lost, late or invalid answer."""
    return error.status is None or error.status >= 500 or error.status in _PASSING


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Additional fields of a request that make the server enforce a form."""
    verdict = {"name": "verdict", "schema": dict(schema), "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": verdict}}


async def identity(client: OpenAIClient) -> str:
    """A key of the model itself, 32 hexadecimal digits: of its name, the server's description and its answers.

    A server that is replaced under the same name and address has another key, unless its first tokens are the same.

    Raises:
        BackendError: no answer.
    """
    said = [await client.complete((Message("user", text),), (), _CANARY_PARAMS) for text in _CANARY]
    texts = ["" if each is None else each.message.reasoning + "\n" + each.message.content for each in said]
    return digest([client.model, json.dumps(client.description, sort_keys=True, default=str), *texts])


async def enforces_schemas(client: OpenAIClient, options: JudgeOptions) -> bool:
    """Whether this server should enforce the form of answers.

    Raises:
        BackendError: no answer.
        UsageError: ``output=json``, and it does not enforce it; or the model's context is too short for ``max_tokens``.
    """
    if options.output == "text":
        return False
    params = SamplingParams(max_tokens=min(options.max_tokens, _MAX_TOKENS), temperature=0.0)

    async def asked(extra: Mapping[str, Any]) -> Completion:
        completion = await client.complete(_QUESTION, (), params, extra)
        if completion is None:
            raise UsageError(
                f"{client.base_url}: the context of {client.model} is shorter than one short question and a reply of "
                f"{params.max_tokens} tokens. Lower max_tokens, or serve the model with a longer context."
            )
        return completion

    held: Completion | None = None
    try:
        held = await asked(response_format(_SCHEMA))
    except BackendError as error:
        if is_passing(error) and error.status not in (500, 501):
            raise
    holds = held is not None and _json(held.message.content) == _CODE
    if options.output == "json":
        still_thinks = held is not None and held.finish == "length" and held.message.reasoning
        if not (holds or (still_thinks and held is not None and not held.message.content)):
            raise UsageError(
                f"output=json: {client.base_url} does not enforce the form of answers (response_format with a JSON "
                "schema). Use output=auto or output=text, or a server that does, such as vLLM."
            )
        return True
    if held is None or not holds:
        return False
    if held.message.reasoning:
        return True  # the server lets the model reason first
    free = await asked({})
    return free.finish == "stop" and not free.message.reasoning


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
