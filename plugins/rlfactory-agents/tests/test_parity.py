"""An agent that does what the built-in loop does gives the same ids, masks and rewards, for the same sampled ids."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from conversations import LIMITS, RecordingSampler, calling
from rlfactory_agents.function import FunctionAgents
from rlfactory_agents.play import play_agent
from rlfactory_agents.server import Gateway
from rlfactory_devkit import ToyChatFormat
from rlfactory_devkit.tokenizers import tiny_tokenizer

from rlfactory_core.chat import Qwen3Format
from rlfactory_core.gateway import Endpoint
from rlfactory_core.protocols import ChatFormat, Env
from rlfactory_core.rewards.scorers import ExactMatch
from rlfactory_core.rollout import Episode, TokenModel, ToolEnv, rollout
from rlfactory_core.tools import DefaultToolManager, tool
from rlfactory_core.types import Message, Sample, SampledTokens, SamplingParams, Trajectory

SAMPLE = Sample("s", (Message("system", "Answer with a place."), Message("user", "Where is it?")), "Ransta")
SCRIPTS = {
    "a call": [calling(query="Tedre Labs"), "<answer> Ransta </answer>"],
    "two calls at once": [f"Let me look.\n{calling(query='a')}\n{calling(query='b')}", "<answer> Ransta </answer>"],
    "odd arguments": ['<tool_call>\n{"name": "search", "arguments": {"query":   "é\\n" }}\n</tool_call>', "Ransta?"],
    "an answer at once": ["<answer> Oslo </answer>"],
}


@tool
async def search(query: str) -> str:
    """Search the corpus.

    Args:
        query: what to look for.
    """
    return f"Nothing is known about {query}."


class Scripted(RecordingSampler):
    """As the recording sampler, in the ids of any chat format."""

    def __init__(self, script: list[str], chat: ChatFormat) -> None:
        super().__init__(script)
        self._chat, self._texts = chat, iter(script)

    async def sample(self, ids: Any, params: SamplingParams, *, session: str) -> SampledTokens:
        said = (*self._chat.encode(next(self._texts)), self._chat.stop_token_ids[0])
        return SampledTokens(said, tuple(-0.01 * (i % 7) for i in said), "stop")


def no_env(*_: object) -> Any:
    raise AssertionError("an agent has no environment")


def by_loop(script: list[str], chat: ChatFormat) -> Trajectory:
    manager = DefaultToolManager([search])

    def make_env(sample: Sample, context: Any) -> Env:
        return ToolEnv(sample, manager, context)

    return asyncio.run(rollout(Episode(SAMPLE, make_env, LIMITS, "run/0/0"), TokenModel(chat, Scripted(script, chat))))


def by_agent(script: list[str], chat: ChatFormat) -> Trajectory:
    (spec,) = DefaultToolManager([search]).specs

    async def agent(sample: Sample, endpoint: Endpoint) -> Any:
        history: list[Any] = [{"role": each.role, "content": each.content} for each in sample.messages]
        headers = {"authorization": f"Bearer {endpoint.key}"}
        async with httpx.AsyncClient(trust_env=False, timeout=30, headers=headers) as client:
            while True:
                body = {"messages": history, "tools": [spec.function_schema]}
                said = (await client.post(f"{endpoint.url}/chat/completions", json=body)).json()
                message = said["choices"][0]["message"]
                history.append(message)
                if not message.get("tool_calls"):
                    return message["content"]
                for call in message["tool_calls"]:
                    found = f"Nothing is known about {json.loads(call['function']['arguments'])['query']}."
                    history.append({"role": "tool", "tool_call_id": call["id"], "content": found})

    async def run() -> Trajectory:
        gateway, agents = Gateway(), FunctionAgents(agent)
        await gateway.open()
        try:
            model = TokenModel(chat, Scripted(script, chat))
            return await play_agent(Episode(SAMPLE, no_env, LIMITS, "run/0/0"), agents, model, gateway, 60.0)
        finally:
            await agents.close()
            await gateway.close()

    return asyncio.run(run())


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("family", ["toy", "qwen3"])
def test_the_same_sampled_ids_give_the_same_trajectory(name: str, family: str) -> None:
    chat: ChatFormat = ToyChatFormat() if family == "toy" else Qwen3Format(tiny_tokenizer("qwen3"))
    loop, agent = by_loop(SCRIPTS[name], chat), by_agent(SCRIPTS[name], chat)
    assert agent.faults == ()
    assert (agent.ids, agent.loss_mask, agent.logprobs) == (loop.ids, loop.loss_mask, loop.logprobs)
    assert [turn.message.content for turn in agent.turns] == [turn.message.content for turn in loop.turns]
    scores = [asyncio.run(ExactMatch().score(each)).value for each in (loop, agent)]
    if name != "odd arguments":  # whose last turn has no answer tag, which the loop's reward asks for
        assert scores[0] == scores[1]
