"""A sampler that records, and a check that what it sampled is trained exactly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any

from rlfactory_devkit import ToyChatFormat

from rlfactory_core.rollout import Episode, RolloutLimits
from rlfactory_core.types import Sample, SampledTokens, SamplingParams, Turn

CHAT = ToyChatFormat()
LIMITS = RolloutLimits(max_turns=40, max_tool_calls=100, max_turn_tokens=400, max_tokens=100_000)
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search the corpus.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that runs in an event loop of its own."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def play() -> None:
            await test(*args, **kwargs)

        asyncio.run(play())

    return run


def no_env(*_: object) -> Any:
    raise AssertionError("an agent has no environment")


def episode(limits: RolloutLimits = LIMITS, sample: Sample | None = None) -> Episode:
    return Episode(sample or Sample("s", "Who?", "him"), no_env, limits, "run/0/0")


def calling(**arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'search', 'arguments': arguments})}\n</tool_call>"


class RecordingSampler:
    """Says what a script says, and keeps each context and answer; it can be made to wait."""

    def __init__(self, script: Sequence[str] | Callable[[int], str]) -> None:
        self._script = script
        self.calls: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self.params: list[SamplingParams] = []
        self.live: set[str] = set()
        self.asked, self.released, self.go = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.go.set()

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        self.live.add(session)
        self.asked.set()
        number = len(self.params)
        self.params.append(params)
        await self.go.wait()
        text = self._script(number) if callable(self._script) else self._script[number]
        whole = (*CHAT.encode(text), CHAT.stop_token_ids[0])
        said = whole[: params.max_tokens]
        self.calls.append((tuple(ids), said))
        return SampledTokens(said, tuple(-0.001 * i for i in said), "stop" if said == whole else "length")

    async def release(self, session: str) -> None:
        self.live.discard(session)
        self.released.set()


def check_exact(turns: tuple[Turn, ...], sampler: RecordingSampler) -> None:
    """Every sampled id is trained exactly once, after exactly the ids after which it was sampled."""
    seen = []
    rows: dict[int, list[int]] = {}
    for turn in turns:
        ids = rows.setdefault(turn.row, [])
        ids += turn.context_ids
        seen.append((tuple(ids), turn.sampled_ids))
        ids += turn.sampled_ids
        assert turn.logprobs == tuple(-0.001 * i for i in turn.sampled_ids)
    assert sorted(seen) == sorted(sampler.calls)
