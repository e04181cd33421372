"""The policy-moved proof of this engine: through the sampler's own path, at prefixes of sequences that are trained."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rlfactory_core.algo.policy_moved import Moved, difference
from rlfactory_core.engines.local.decoding.sampler import LocalSampler
from rlfactory_core.engines.local.model.pack import Packed, pack
from rlfactory_core.engines.local.model.policy import Policy
from rlfactory_core.engines.local.training.workers import Compute
from rlfactory_core.types import SamplingParams, TrainBatch, TrainSequence

TOKENS = 8  # that are compared
UPDATES = 20  # after which a policy that has not moved measurably is left alone


class PolicyMovedProof:
    """Compares the sampler with the trainer before and after the first updates of a process.

    At each of a few prefixes the sampler samples one token. The trainer computes the distribution of that token, before
    the first update and after each one, until the policy has moved measurably.
    """

    def __init__(self, policy: Policy, sampler: LocalSampler, compute: Compute) -> None:
        self._policy, self._sampler, self._compute = policy, sampler, compute
        self._packed: Packed | None = None
        self._rows: list[TrainSequence] = []
        self._old = torch.empty(0)  # [tokens, vocabulary]
        self._noise = 0.0
        self._updates = 0
        self.over = False
        self.found: Moved | None = None

    async def before(self, batches: Sequence[TrainBatch]) -> None:
        """Look at what is about to be trained; done once, before the first update that trains anything."""
        chosen = _least_likely([row for batch in batches for micro in batch.microbatches for row in micro])
        if self.over or self._packed is not None or not chosen:
            return
        self._rows = chosen
        self._packed = pack(chosen, self._policy.device, share_prefix=False)
        self._old = await self._compute.run(self._distributions)
        ids, logprobs = await self._sampled("before")
        self._noise = difference(logprobs, _at(self._old, ids))

    async def after(self, step: int) -> None:
        """Compare, if the proof is not over.

        Raises:
            TrainingError: the sampler has the old weights.
        """
        if self.over or self._packed is None:
            return
        self._updates += 1
        new = await self._compute.run(self._distributions)
        ids, logprobs = await self._sampled(str(step))
        self.found = Moved.of(step, logprobs, _at(self._old, ids), _at(new, ids), self._noise)
        self.found.check()
        self.over = self.found.measurable or self._updates >= UPDATES
        if self.over:
            self._packed, self._old = None, torch.empty(0)

    @torch.no_grad()
    def _distributions(self) -> Tensor:
        """[tokens, vocabulary] log-probs at temperature 1."""
        assert self._packed is not None
        return torch.log_softmax(self._policy.target_logits(self._packed).float(), -1).cpu()

    async def _sampled(self, when: str) -> tuple[list[int], list[float]]:
        """One token after each prefix, and its log-prob in the sampler."""
        sessions = [f"policy-moved/{when}/{number}" for number in range(len(self._rows))]
        self._sampler.expect(sessions)
        params = [SamplingParams(1, seed=number, images=row.images) for number, row in enumerate(self._rows)]
        asked = zip(sessions, self._rows, params, strict=True)
        asking = (self._sampler.sample(row.ids[:-1], how, session=name) for name, row, how in asked)
        found = await asyncio.gather(*asking)
        for session in sessions:
            await self._sampler.release(session)
        return [each.token_ids[0] for each in found], [each.logprobs[0] for each in found]


def _least_likely(rows: Sequence[TrainSequence]) -> list[TrainSequence]:
    """Beginnings of trained sequences, each up to the sampled token that was the least likely, which moves the most."""
    found = []
    for row in rows:
        places = [place for place, own in enumerate(row.loss_mask) if own and place]
        place = min(places, key=lambda place: row.logprobs[place], default=0)
        if place:
            end = place + 1
            cut = replace(row, ids=row.ids[:end], logprobs=row.logprobs[:end], advantages=row.advantages[:end])
            found.append((row.logprobs[place], replace(cut, loss_mask=(0,) * place + (1,))))
    return [row for _, row in sorted(found, key=lambda item: item[0])[:TOKENS]]


def _at(distributions: Tensor, ids: Sequence[int]) -> list[float]:
    values: list[float] = distributions[torch.arange(len(ids)), torch.tensor(ids)].tolist()
    return values
