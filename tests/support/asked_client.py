"""A client of a server on the loopback, and a question to it."""

from __future__ import annotations

import asyncio
from typing import Any

from rlfactory_core.clients import OpenAIClient
from rlfactory_core.protocols import Request, Sampled
from rlfactory_core.types import Message, SamplingParams, ToolSpec

LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {"where": {"type": "string"}}})
ASK = (Message("system", "Be brief."), Message("user", "Who?"))
PARAMS = SamplingParams(max_tokens=50, temperature=0.7, top_p=0.9, seed=2**62 + 5)


def client(url: str, model: str | None = None, **options: Any) -> OpenAIClient:
    return OpenAIClient(url, model, **{"backoff_s": (0.001, 0.002), **options})


async def ask(openai: OpenAIClient, *messages: Message, params: SamplingParams = PARAMS) -> Sampled | None:
    return await openai.answer(Request(messages or ASK, [LOOK], params))


def talk(openai: OpenAIClient, *messages: Message) -> Sampled | None:
    async def run() -> Sampled | None:
        await openai.open([LOOK])
        try:
            return await ask(openai, *messages)
        finally:
            await openai.close()

    return asyncio.run(run())
