"""Plays an attempt again that an infra fault has spoilt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rlfactory_core.protocols import Sampler
from rlfactory_core.types import PROMPT, FaultKind, SampledTokens, SamplingParams, Trajectory


class RememberingSampler:
    """Samples each turn once: after the same ids it gives the same tokens again, in the order in which they came.

    A retry is then the same attempt in a fresh environment. With other tokens it would be a selection: if a tool is
    down, who called it would be sampled anew until it does not call.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._sampled: dict[tuple[int, ...], list[SampledTokens]] = {}
        self._given: dict[tuple[int, ...], int] = {}

    def begin_again(self) -> None:
        """The attempt begins anew."""
        self._given.clear()

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        key = tuple(ids)
        number = self._given.get(key, 0)
        known = self._sampled.setdefault(key, [])
        if number == len(known):
            known.append(await self._sampler.sample(ids, params, session=session))
        self._given[key] = number + 1
        return known[number]

    async def release(self, session: str) -> None:
        await self._sampler.release(session)


async def retried(play: Callable[[Sampler], Awaitable[Trajectory]], sampler: Sampler, retries: int) -> Trajectory:
    """The attempt, played again at most ``retries`` times while an infra fault spoils it."""
    if not retries:
        return await play(sampler)
    remembering = RememberingSampler(sampler)
    trajectory = await play(remembering)
    for _ in range(retries):
        if not any(fault.kind is FaultKind.INFRA and fault.source != PROMPT for fault in trajectory.faults):
            break
        remembering.begin_again()
        trajectory = await play(remembering)
    return trajectory
