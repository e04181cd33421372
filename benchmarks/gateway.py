"""What the gateway adds to a request of an agent, beside the bare sampler and beside another gateway.

    python benchmarks/gateway.py            # writes benchmarks/results/gateway.md

The agents are another process, which plays histories of eight turns through OpenAI's chat completions. The sampler
answers after a fixed time, so that only the gateway works: reading the request, finding its row, encoding what is new
with a real chat format, writing the answer. rLLM's gateway (``rllm-model-gateway``) forwards the same requests to a
server, which answers after the same time: it keeps what the server says, and encodes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import quantiles
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

from machine import describe, finish, publish, sized
from rlfactory_agents.conversation import Conversation
from rlfactory_agents.server import Gateway
from rlfactory_devkit.tokenizers import tiny_tokenizer

from rlfactory_core.chat import Qwen3Format
from rlfactory_core.rollout import Episode, RolloutLimits, TokenModel
from rlfactory_core.types import Message, Sample, SampledTokens, SamplingParams, ToolSpec
from rlfactory_core.utils.garbage import collect_rarely

RESULTS = Path(__file__).parent / "results" / "gateway.md"
TRAJECTORIES = sized(256, 4)  # in flight
ROUNDS = sized(4, 1)
TURNS = 8
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


REQUESTS = ROUNDS * TRAJECTORIES * TURNS


@dataclass
class Work:
    """The CPU of a number of requests, in milliseconds, and how many were answered in a second."""

    rate: float = 0.0
    total: float = 0.0  # of the process
    each: list[float] = field(default_factory=list)  # of one request's own tasks; empty: not known

    def percentile(self, number: int) -> float:
        """Of a request, with its part of what belongs to no request, such as parsing what a socket has got."""
        rest = (self.total - sum(self.each)) / REQUESTS
        return rest + (quantiles(self.each, n=100)[number - 1] if self.each else 0.0)


OWNER: ContextVar[list[float] | None] = ContextVar("OWNER", default=None)
"""Of the request that a task works for: its CPU so far."""


class Metered(Coroutine[Any, Any, Any]):
    """A coroutine that adds the CPU of each of its steps to its request's."""

    def __init__(self, inner: Any, spent: list[float]) -> None:
        self._inner, self._spent = inner, spent

    def send(self, value: Any) -> Any:
        return self._step(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._inner.throw, *error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise AssertionError("only a task steps it")

    def _step(self, act: Callable[..., Any], *values: Any) -> Any:
        start = time.thread_time()
        try:
            return act(*values)
        finally:
            self._spent.append(1000 * (time.thread_time() - start))


@contextlib.contextmanager
def metered(requests: list[list[float]]) -> Any:
    """Within the block, every task of the web server's, and those which it starts, are counted as one request."""

    def make(loop: asyncio.AbstractEventLoop, inner: Any, **options: Any) -> asyncio.Task[Any]:
        spent = OWNER.get()
        if spent is None and "run_asgi" in getattr(inner, "__qualname__", ""):
            spent = []
            requests.append(spent)
            options["context"] = copy_context()
            options["context"].run(OWNER.set, spent)
        return asyncio.Task(inner if spent is None else Metered(inner, spent), loop=loop, **options)

    loop = asyncio.get_running_loop()
    loop.set_task_factory(make)
    try:
        yield
    finally:
        loop.set_task_factory(None)


async def bare() -> Work:
    """The same work without a gateway: the prompt and the observations encoded, the answer parsed."""
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

    async def all_at_once(_: int) -> None:
        await asyncio.gather(*map(play, range(TRAJECTORIES)))

    return await measured(all_at_once, time.process_time)


async def measured(play: Callable[[int], Awaitable[None]], cpu: Callable[[], float]) -> Work:
    started, before = time.perf_counter(), cpu()
    for turn in range(ROUNDS):
        await play(turn)
    return Work(REQUESTS / (time.perf_counter() - started), 1000 * (cpu() - before))


async def ours() -> Work:
    gateway, requests = Gateway(), []
    await gateway.open()

    async def play(turn: int) -> None:
        with contextlib.ExitStack() as stack:
            kept = [stack.enter_context(gateway.serving(conversation(number))) for number in range(TRAJECTORIES)]
            await agents([(each.url, each.key) for each in kept], turn)

    try:
        with metered(requests):
            work = await measured(play, time.process_time)
    finally:
        await gateway.close()
    work.each = [sum(spent) for spent in requests]
    return work


async def rllm() -> Work | None:
    """None: it is not installed."""
    if find_spec("rllm_model_gateway") is None:
        return None
    import httpx
    import psutil

    async with program("--server", ready="/health") as server:
        options = ("--store", "memory", "--log-level", "ERROR", "--worker", f"{server.url}/v1")
        async with program("-m", "rllm_model_gateway", *options, ready="/health") as gateway:
            process = psutil.Process(gateway.pid)

            async def play(turn: int) -> None:
                names = [f"{turn}-{number}" for number in range(TRAJECTORIES)]
                await agents([(f"{gateway.url}/sessions/{name}/v1", "EMPTY") for name in names], turn)
                # It keeps the requests of each session, of which the trainer asks it.
                async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                    kept = (await client.get(f"{gateway.url}/sessions/{names[0]}/traces")).json()
                assert len(kept) == TURNS, kept

            return await measured(play, lambda: sum(process.cpu_times()[:2]))


@dataclass(frozen=True)
class Program:
    url: str
    pid: int


@contextlib.asynccontextmanager
async def program(*arguments: str, ready: str) -> AsyncIterator[Program]:
    """A server in a process of its own, which takes ``--port``."""
    import httpx

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, *((__file__,) if arguments[0] == "--server" else ()), *arguments, "--port", str(port)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(60):
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(url + ready)).is_success:
                        break
                await asyncio.sleep(0.05)
        yield Program(url, process.pid)
    finally:
        process.terminate()
        await process.wait()


def serve(port: int) -> None:
    """What vLLM's server answers, after a fixed time."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    call = {"id": "call_0", "type": "function", "function": {"name": "search", "arguments": '{"query": "Tedre Labs"}'}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    tokens = [{"token": "x", "logprob": -0.5, "bytes": None, "top_logprobs": []} for _ in SAID]

    async def answer(request: Any) -> JSONResponse:
        asked = await request.json()
        await asyncio.sleep(SAMPLER_S)
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "token_ids": SAID}
        prompt = list(range(100 * len(asked["messages"])))
        choice["logprobs"] = {"content": tokens}
        return JSONResponse(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": "policy",
                "choices": [choice],
                "prompt_token_ids": prompt,
            }
        )

    async def healthy(_: Any) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    routes = [Route("/v1/chat/completions", answer, methods=["POST"])]
    routes += [Route(path, healthy) for path in ("/health", "/v1/health", "/v1/models")]
    uvicorn.run(Starlette(routes=routes), port=port, log_config=None)


async def agents(addresses: Sequence[tuple[str, str]], seed: int) -> None:
    """Play all trajectories at once, in another process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--agents", str(seed), stdin=subprocess.PIPE
    )
    await process.communicate(json.dumps(list(addresses)).encode())
    if process.returncode:
        raise RuntimeError("the agents failed")


async def play_agents(seed: int, addresses: Sequence[tuple[str, str]]) -> None:
    import httpx

    tools = [tool.function_schema for tool in TOOLS]

    async def play(number: int, url: str, key: str) -> None:
        history: list[Any] = [
            {"role": "system", "content": "Answer with a place."},
            {"role": "user", "content": f"Where is it? {seed} {number}"},
        ]
        # A client for each trajectory: one pool of 256 connections costs its process far more than any gateway.
        async with httpx.AsyncClient(trust_env=False, timeout=300, verify=False) as client:
            for turn in range(TURNS):
                body = {"model": "policy", "messages": history, "tools": tools}
                headers = {"authorization": f"Bearer {key}"}
                response = await client.post(f"{url}/chat/completions", json=body, headers=headers)
                response.raise_for_status()
                message = response.json()["choices"][0]["message"]
                call = message["tool_calls"][0]["id"]
                history += [message, {"role": "tool", "tool_call_id": call, "content": f"{FOUND}{turn}"}]

    await asyncio.gather(*(play(number, *address) for number, address in enumerate(addresses)))


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
    from rlfactory_agents.exchange import ModelRequest

    messages = [Message("system", "Answer with a place."), Message("user", f"Where is it? {number}")]
    for turn in range(TURNS):
        (answer,) = await made.answer(ModelRequest(tuple(messages), TOOLS))
        call = answer.message.tool_calls[0].id
        messages += [answer.message, Message("tool", f"{FOUND}{turn}", tool_call_id=call, name="search")]


def report(base: Work, own: Work, other: Work | None, memory: float) -> tuple[str, bool]:
    added = {f"p{number}": own.percentile(number) - base.total / REQUESTS for number in (50, 99)}
    rows = ["| | CPU a request, mean | p50 | p99 | requests a second |", "|---|---|---|---|---|"]
    named = {"the sampler, without a gateway": base, "through the gateway": own, "rLLM's gateway": other}
    for name, each in named.items():
        if each is not None:
            tail = [f"{each.percentile(number):.2f} ms" if each.each else "" for number in (50, 99)]
            rows.append(f"| {name} | {each.total / REQUESTS:.2f} ms | {tail[0]} | {tail[1]} | {each.rate:.0f} |")
    rows.append(
        f"| added | {(own.total - base.total) / REQUESTS:.2f} ms | {added['p50']:.2f} ms | {added['p99']:.2f} ms | |"
    )
    rows.append(f"| bar | | ≤ {BARS['p50']:g} ms | ≤ {BARS['p99']:g} ms | |")
    peer = "" if other else "rLLM's gateway was not installed. "
    text = (
        f"# The gateway, {TRAJECTORIES} trajectories in flight\n\n"
        f"{REQUESTS:,} requests: {ROUNDS} rounds of {TRAJECTORIES} trajectories of {TURNS} turns, a result of "
        f"{len(FOUND)} characters in each;\n"
        f"the sampler answers after {1000 * SAMPLER_S:.0f} ms. CPU is of the process with the gateway. rLLM's forwards "
        "to a server, and encodes nothing;\nours has the chat format's encoding in it.\n\n" + "\n".join(rows) + "\n\n"
        f"{peer}A trajectory of {TURNS} turns holds {memory / 1024:.0f} KiB.\n\n"
        f"Made by `python benchmarks/gateway.py` on {describe('starlette', 'uvicorn', 'rllm-model-gateway')}.\n"
    )
    return text, all(added[name] <= bar for name, bar in BARS.items())


async def main() -> None:
    collect_rarely()  # as both engines do
    base, own, other = await bare(), await ours(), await rllm()
    text, held = report(base, own, other, await bytes_a_trajectory())
    publish(RESULTS, text)
    finish(held=held)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--agents"]:
        asyncio.run(play_agents(int(sys.argv[2]), json.load(sys.stdin)))
    elif sys.argv[1:2] == ["--server"]:
        serve(int(sys.argv[-1]))
    else:
        asyncio.run(main())
