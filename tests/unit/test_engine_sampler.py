"""The asynchronous side of decoding: many sessions at once, determinism, errors and cancellation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tiny_models import make_model, random_ids

from rlfactory_core.engines.local.decoding.decoder import Finished, Request, SlotDecoder
from rlfactory_core.engines.local.decoding.padded_decoder import PaddedDecoder
from rlfactory_core.engines.local.decoding.sampler import LocalSampler
from rlfactory_core.engines.local.model.policy import PaddedPolicy, RaggedPolicy
from rlfactory_core.types import SampledTokens, SamplingParams

PREFIX = random_ids(10, 1)


class Counting:
    """A decoder that gives a session's name after as many steps as it has letters; it can be set to fail."""

    def __init__(self, *, fails_at: int = 0) -> None:
        self.rows: dict[str, tuple[Request, int]] = {}
        self.steps, self.fails_at = 0, fails_at
        self.released: list[str] = []

    @property
    def active(self) -> int:
        return len(self.rows)

    def admissible(self, waiting: Sequence[Request]) -> list[Request]:
        return list(waiting)

    def admit(self, requests: Sequence[Request]) -> Finished:
        self.rows |= {request.session: (request, len(request.session)) for request in requests}
        return []

    def step(self) -> Finished:
        self.steps += 1
        if self.steps == self.fails_at:
            raise MemoryError("no room for keys")
        self.rows = {name: (request, left - 1) for name, (request, left) in self.rows.items()}
        over = [request for request, left in self.rows.values() if left <= 0]
        for request in over:
            del self.rows[request.session]
        ids = {request.session: tuple(request.session.encode()) for request in over}
        return [(r, SampledTokens(ids[r.session], (0.0,) * len(ids[r.session]), "stop")) for r in over]

    def release(self, session: str) -> None:
        self.rows.pop(session, None)
        self.released.append(session)

    def weights_changed(self, version: int) -> None: ...


def run(decoder: Any, work: Callable[[LocalSampler], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        async with LocalSampler(decoder, compute, **options) as sampler:
            return await asyncio.wait_for(work(sampler), 60)

    with ThreadPoolExecutor(1) as compute:
        return asyncio.run(main())


async def play(sampler: LocalSampler, name: str, turns: int, pause: Callable[[], Awaitable[None]]) -> list[Any]:
    """A trajectory: turns with observations of its own between them, tools that take a while; three share a prompt."""
    group, rng = random.Random(int(name[1:]) // 3), random.Random(name)
    ids = (*PREFIX, *(group.randrange(1, 300) for _ in range(group.randrange(2, 40))))
    answers = []
    for turn in range(turns):
        params = SamplingParams(8, seed=rng.randrange(2**40), stop_token_ids=(7,))
        tokens = await sampler.sample(ids, params, session=name)
        answers.append((tokens.token_ids, tokens.logprobs))
        await pause()
        ids = (*ids, *tokens.token_ids, *(rng.randrange(1, 300) for _ in range(1 + turn)))
    await sampler.release(name)
    return answers


def make_sampler_run(model: Any, delays: int, *, deterministic: bool, count: int = 14) -> dict[str, Any]:
    """``delays`` seeds how long each tool takes."""
    rng = random.Random(delays)

    async def pause() -> None:
        for _ in range(rng.randrange(40)):
            await asyncio.sleep(0)

    async def work(sampler: LocalSampler) -> dict[str, Any]:
        names = [f"s{i}" for i in range(count)]
        sampler.expect(names)
        order = names[:]
        rng.shuffle(order)
        turns = {name: 1 + i % 4 for i, name in enumerate(names)}
        played = await asyncio.gather(*(play(sampler, name, turns[name], pause) for name in order))
        return dict(zip(order, played, strict=True))

    decoder = SlotDecoder(RaggedPolicy(model), slots=5, prefix=PREFIX, stop_token_ids=(7,))
    return run(decoder, work, deterministic=deterministic)


def test_deterministic_mode_is_bitwise_equal_under_random_delays() -> None:
    model = make_model("qwen3")
    first = make_sampler_run(model, 1, deterministic=True)
    for delays in (2, 3):
        assert make_sampler_run(model, delays, deterministic=True) == first  # log-probs too, to the last bit


def test_free_running_gives_the_same_tokens_for_the_same_seeds() -> None:
    model = make_model("qwen3")
    first = make_sampler_run(model, 1, deterministic=True)
    free = make_sampler_run(model, 2, deterministic=False)
    assert {name: [ids for ids, _ in turns] for name, turns in free.items()} == {
        name: [ids for ids, _ in turns] for name, turns in first.items()
    }


def test_the_padded_decoder_serves_the_same_sampler() -> None:
    async def work(sampler: LocalSampler) -> Any:
        async def pause() -> None: ...

        return await asyncio.gather(*(play(sampler, f"s{i}", 2, pause) for i in range(5)))

    model = make_model("bloom")
    answers = run(PaddedDecoder(PaddedPolicy(model), slots=3), work)
    assert all(len(turns) == 2 and all(0 < len(ids) <= 8 for ids, _ in turns) for turns in answers)


def test_many_sessions_get_their_own_answers() -> None:
    names = ["x" * (1 + i % 7) + str(i) for i in range(200)]

    async def work(sampler: LocalSampler) -> list[SampledTokens]:
        return await asyncio.gather(*(sampler.sample((1,), SamplingParams(9), session=name) for name in names))

    answers = run(Counting(), work)
    assert [bytes(tokens.token_ids).decode() for tokens in answers] == names


def test_an_error_in_the_decoder_reaches_all_callers_and_later_ones() -> None:
    async def work(sampler: LocalSampler) -> list[Any]:
        asked = [sampler.sample((1,), SamplingParams(9), session="x" * 30 + str(i)) for i in range(3)]
        errors = await asyncio.gather(*asked, return_exceptions=True)
        with pytest.raises(MemoryError):
            await sampler.sample((1,), SamplingParams(9), session="later")
        return errors

    with pytest.raises(MemoryError, match="no room"):
        run(Counting(fails_at=3), work)

    async def collect(sampler: LocalSampler, found: list[Any]) -> None:
        found += await work(sampler)

    found: list[Any] = []
    with pytest.raises(MemoryError):
        run(Counting(fails_at=3), lambda sampler: collect(sampler, found))
    assert [str(error) for error in found] == ["no room for keys"] * 3


def test_a_cancelled_caller_frees_its_row_and_leaves_the_others_alone() -> None:
    decoder = Counting()

    async def work(sampler: LocalSampler) -> SampledTokens:
        forever = asyncio.create_task(sampler.sample((1,), SamplingParams(9), session="x" * 100_000))
        while not decoder.active:  # noqa: ASYNC110 - the decoder is not asyncio's
            await asyncio.sleep(0)
        forever.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forever
        await sampler.release("x" * 100_000)
        return await sampler.sample((1,), SamplingParams(9), session="next")

    assert bytes(run(decoder, work).token_ids) == b"next"
    assert decoder.active == 0
    assert decoder.released == ["x" * 100_000]


def test_closing_the_sampler_cancels_waiting_callers() -> None:
    async def main() -> None:
        async with LocalSampler(Counting(), compute) as sampler:
            waiting = asyncio.create_task(sampler.sample((1,), SamplingParams(9), session="x" * 10_000_000))
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with ThreadPoolExecutor(1) as compute:
        asyncio.run(main())
