"""What the gateway adds to a request of an agent, beside the bare sampler.

    python benchmarks/gateway.py            # writes benchmarks/results/gateway.md

The agents are another process, which plays histories of eight turns through OpenAI's chat completions. The sampler
answers after a fixed time, so that only the gateway works: reading the request, finding its row, encoding what is new
with a real chat format, writing the answer. "CPU" is the gateway process's own, over windows of 32 requests, since
many requests are under way at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

from machine import describe, finish, publish, sized

from rlfactory_core.chat.qwen3 import Qwen3Format
from rlfactory_core.gateway.conversation import Conversation
from rlfactory_core.gateway.models import TokenModel
from rlfactory_core.gateway.server import Gateway
from rlfactory_core.rollout import Episode, RolloutLimits
from rlfactory_core.testing.tokenizers import tiny_tokenizer
from rlfactory_core.types import Message, Sample, SampledTokens, SamplingParams, ToolSpec

RESULTS = Path(__file__).parent / "results" / "gateway.md"
TRAJECTORIES = sized(256, 4)  # in flight
ROUNDS = sized(4, 1)
TURNS = 8
WINDOW = 32
SAMPLER_S = 0.25
MEMORY_OF = sized(500, 4)
BARS = {"p50": 2.0, "p99": 5.0}  # milliseconds of CPU
LIMITS = RolloutLimits(1000, 1000, 512, 100_000)
FOUND = "Tedre Labs is based in Tinmivor. Tinmivor lies in Ransta. " * 8
TOOLS = (
    ToolSpec(
        "search",
        "Search the corpus.",
        {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    ),
)
CHAT = Qwen3Format(tiny_tokenizer("qwen3"))
SAID = CHAT.encode('<tool_call>\n{"name": "search", "arguments": {"query": "Tedre Labs"}}\n</tool_call><|im_end|>')


class SlowSampler:
    """Answers with the same call after a fixed time, without using the CPU."""

    def __init__(self, delay_s: float = SAMPLER_S) -> None:
        self._delay_s = delay_s

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        await asyncio.sleep(self._delay_s)
        return SampledTokens(SAID, (-0.5,) * len(SAID), "stop")

    async def release(self, session: str) -> None:
        pass


def no_env(*_: object) -> Any:
    raise AssertionError("an agent has no environment")


def conversation(number: int, delay_s: float = SAMPLER_S) -> Conversation:
    episode = Episode(Sample(str(number), "Where is it?"), no_env, LIMITS, f"b/{number}")
    return Conversation(episode, TokenModel(CHAT, SlowSampler(delay_s)))


@dataclass(frozen=True)
class Measured:
    """Milliseconds of CPU a request by window, and requests a second."""

    windows: list[float]
    rate: float

    def percentile(self, number: int) -> float:
        return quantiles(self.windows, n=100)[number - 1] if len(self.windows) > 1 else self.windows[0]


class Windows:
    """Counts requests, and the CPU of this process between every `WINDOW` of them."""

    def __init__(self) -> None:
        self.cpu_ms: list[float] = []
        self._count, self._since = 0, time.process_time()

    def count(self) -> None:
        self._count += 1
        if self._count == WINDOW:
            now = time.process_time()
            self.cpu_ms.append(1000 * (now - self._since) / WINDOW)
            self._count, self._since = 0, now


async def bare() -> Measured:
    """The same work without a gateway: the prompt and the observations encoded, the answer parsed."""
    windows, started = Windows(), time.perf_counter()
    sampler, params = SlowSampler(), SamplingParams(512)

    async def play(number: int) -> None:
        prompt = (Message("system", "Answer with a place."), Message("user", f"Where is it? {number}"))
        ids = list(CHAT.initial_ids(prompt, TOOLS))
        for turn in range(TURNS):
            sampled = await sampler.sample(ids, params, session=str(number))
            said = CHAT.parse(sampled.token_ids, TOOLS)
            ids += sampled.token_ids
            result = Message("tool", f"{FOUND}{turn}", tool_call_id=said.tool_calls[0].id, name="search")
            ids += CHAT.observation_ids([result])
            windows.count()

    for _ in range(ROUNDS):
        await asyncio.gather(*map(play, range(TRAJECTORIES)))
    return Measured(windows.cpu_ms or [0.0], ROUNDS * TRAJECTORIES * TURNS / (time.perf_counter() - started))


async def ours() -> Measured:
    gateway, windows = Gateway(), Windows()
    await gateway.open()
    answered = Conversation.answer

    async def counted(self: Conversation, request: Any) -> Any:
        found = await answered(self, request)
        windows.count()
        return found

    Conversation.answer = counted  # type: ignore[method-assign]
    try:
        started = time.perf_counter()
        for turn in range(ROUNDS):
            kept = [gateway.serving(conversation(number)) for number in range(TRAJECTORIES)]
            endpoints = [each.__enter__() for each in kept]
            await agents(endpoints[0].url, [each.key for each in endpoints], turn)
            for each in kept:
                each.__exit__(None, None, None)
        rate = ROUNDS * TRAJECTORIES * TURNS / (time.perf_counter() - started)
    finally:
        Conversation.answer = answered  # type: ignore[method-assign]
        await gateway.close()
    return Measured(windows.cpu_ms or [0.0], rate)


async def agents(url: str, keys: Sequence[str], seed: int) -> None:
    """Play all trajectories at once, in another process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--agents", url, str(seed), stdin=subprocess.PIPE
    )
    await process.communicate(json.dumps(list(keys)).encode())
    if process.returncode:
        raise RuntimeError("the agents failed")


async def play_agents(url: str, seed: int, keys: Sequence[str]) -> None:
    import httpx

    tools = [tool.function_schema for tool in TOOLS]
    limits = httpx.Limits(max_connections=len(keys), max_keepalive_connections=len(keys))

    async def play(number: int, key: str) -> None:
        history: list[Any] = [
            {"role": "system", "content": "Answer with a place."},
            {"role": "user", "content": f"Where is it? {seed} {number}"},
        ]
        for turn in range(TURNS):
            body = {"model": "policy", "messages": history, "tools": tools}
            response = await client.post(
                f"{url}/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}
            )
            response.raise_for_status()
            message = response.json()["choices"][0]["message"]
            call = message["tool_calls"][0]["id"]
            history += [message, {"role": "tool", "tool_call_id": call, "content": f"{FOUND}{turn}"}]

    async with httpx.AsyncClient(trust_env=False, timeout=300, limits=limits) as client:
        await asyncio.gather(*(play(number, key) for number, key in enumerate(keys)))


async def bytes_a_trajectory() -> float:
    """Held for a trajectory of eight turns while its agent works."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    held = []
    for number in range(MEMORY_OF):
        made = conversation(number, 0.0)
        await _eight_turns(made, number)
        held.append(made)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / len(held)


async def _eight_turns(made: Conversation, number: int) -> None:
    from rlfactory_core.gateway.exchange import ModelRequest

    messages = [Message("system", "Answer with a place."), Message("user", f"Where is it? {number}")]
    for turn in range(TURNS):
        (answer,) = await made.answer(ModelRequest(tuple(messages), TOOLS))
        call = answer.message.tool_calls[0].id
        messages += [answer.message, Message("tool", f"{FOUND}{turn}", tool_call_id=call, name="search")]


def report(base: Measured, own: Measured, memory: float) -> tuple[str, bool]:
    added = {f"p{number}": own.percentile(number) - base.percentile(50) for number in (50, 99)}
    lines = {"the sampler, without a gateway": base, "through the gateway": own}
    rows = ["| | CPU a request, p50 | p99 | requests a second |", "|---|---|---|---|"]
    for name, each in lines.items():
        rows.append(f"| {name} | {each.percentile(50):.2f} ms | {each.percentile(99):.2f} ms | {each.rate:.0f} |")
    rows.append(f"| added | {added['p50']:.2f} ms | {added['p99']:.2f} ms | |")
    rows.append(f"| bar | ≤ {BARS['p50']:g} ms | ≤ {BARS['p99']:g} ms | |")
    text = (
        f"# The gateway, {TRAJECTORIES} trajectories in flight\n\n"
        f"{ROUNDS * TRAJECTORIES * TURNS:,} requests: {ROUNDS} rounds of {TRAJECTORIES} trajectories of {TURNS} turns, "
        f"a result of {len(FOUND)} characters in each;\n"
        f"the sampler answers after {1000 * SAMPLER_S:.0f} ms. CPU is of the process with the gateway, over windows of "
        f"{WINDOW} requests.\n\n" + "\n".join(rows) + "\n\n"
        f"A trajectory of {TURNS} turns holds {memory / 1024:.0f} KiB.\n\n"
        f"Made by `python benchmarks/gateway.py` on {describe('starlette', 'uvicorn')}.\n"
    )
    return text, all(added[name] <= bar for name, bar in BARS.items())


async def main() -> None:
    base, own = await bare(), await ours()
    text, held = report(base, own, await bytes_a_trajectory())
    publish(RESULTS, text)
    finish(held=held)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--agents"]:
        asyncio.run(play_agents(sys.argv[2], int(sys.argv[3]), json.load(sys.stdin)))
    else:
        asyncio.run(main())
