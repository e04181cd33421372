"""A gateway with one conversation, and a client that asks over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from conversations import CHAT, SEARCH, RecordingSampler, calling, episode
from rlfactory_agents.conversation import Conversation
from rlfactory_agents.server import Gateway

from rlfactory_core.gateway import Endpoint
from rlfactory_core.rollout import TokenModel

CHAT_PATH, RESPONSES_PATH, MESSAGES_PATH = "/chat/completions", "/responses", "/messages"
THOUGHT_CALL = f"<think>\nhm\n</think>\n\nLet me look. {calling(query='é')}"
ANTHROPIC_TOOL = {"name": "search", "description": "Search.", "input_schema": {"type": "object", "properties": {}}}
RESPONSES_TOOL = {"type": "function", **SEARCH["function"]}  # type: ignore[dict-item]


class Served:
    """A conversation behind a real gateway, and a client."""

    def __init__(self, gateway: Gateway, conversation: Conversation, endpoint: Endpoint, sampler: Any) -> None:
        self.gateway, self.conversation, self.endpoint, self.sampler = gateway, conversation, endpoint, sampler
        headers = {"authorization": f"Bearer {endpoint.key}"}
        self.client = httpx.AsyncClient(base_url=endpoint.url, headers=headers, trust_env=False, timeout=30)

    async def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return await self.client.post(path, json=body, **options)


@asynccontextmanager
async def served(*script: str) -> AsyncIterator[Served]:
    gateway, sampler = Gateway(), RecordingSampler(script)
    await gateway.open()
    conversation = Conversation(episode(), TokenModel(CHAT, sampler))
    try:
        with gateway.serving(conversation) as endpoint:
            made = Served(gateway, conversation, endpoint, sampler)
            async with made.client:
                yield made
    finally:
        await gateway.close()


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]
