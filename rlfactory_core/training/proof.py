"""The policy-moved proof: after an update the sampler has the new weights, and not the old ones.

A sampler with stale weights trains on, and learns little or nothing; without the proof that shows late, if at all
(verl issue 7495, ms-swift issue 9855). So each start and each resume compares log-probs of the same tokens in the
sampler, under the policy before the updates and under the policy after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum

from rlfactory_core.engines.base import Engine
from rlfactory_core.errors import TrainingError
from rlfactory_core.protocols import Sampler
from rlfactory_core.types import SampledTokens, SamplingParams, TrainBatch, TrainSequence
from rlfactory_core.utils.aio import gather_all

MARGIN = 3.0  # the policy has moved measurably if by so many times the difference between sampler and trainer before
LEAST = 1e-6  # nats; rounding in float32
TOKENS = 8  # that are compared
UPDATES = 20  # after which a policy that has not moved measurably is left alone


@dataclass(frozen=True, slots=True)
class Moved:
    """Mean absolute differences of log-probs, in nats, over the same tokens."""

    step: int  # whose update was the last
    moved: float  # of the policy after the updates to the policy before
    to_new: float  # of the sampler to the policy after the updates
    to_old: float  # of the sampler to the policy before
    noise: float  # of the sampler to the trainer before any update, with the same weights

    @classmethod
    def of(cls, step: int, sampler: Sequence[float], old: Sequence[float], new: Sequence[float], noise: float) -> Moved:
        """From log-probs of the same tokens."""
        return cls(step, difference(new, old), difference(sampler, new), difference(sampler, old), noise)

    @property
    def measurable(self) -> bool:
        """Whether the policy has moved by more than what sampler and trainer differ by anyway."""
        return self.moved > max(LEAST, MARGIN * self.noise)

    def check(self) -> None:
        """Raises a `TrainingError` if the sampler is nearer to the old policy than to the new one."""
        if self.measurable and self.to_old <= self.to_new:
            raise TrainingError(
                f"The sampler does not have the trained weights. After the update of step {self.step} the log-probs of "
                f"tokens just trained had moved by {self.moved:.3g} nats in the trainer. Those of the sampler differ "
                f"by {self.to_new:.3g} from the new policy and by {self.to_old:.3g} from the old one. The run would "
                "sample from weights that never change. This is a fault of the engine or of what transfers the "
                "weights; the checkpoints before this step are intact."
            )


def difference(these: Sequence[float], others: Sequence[float]) -> float:
    """The mean absolute difference of log-probs of the same tokens."""
    return fsum(abs(a - b) for a, b in zip(these, others, strict=True)) / len(these) if these else 0.0


class PolicyMovedProof:
    """Compares the sampler with the trainer before and after the first updates of a process.

    At each of a few prefixes the sampler samples one token, which the trainer scores. After each update the sampler
    samples again, with the same random numbers, until the policy has moved measurably. Another token that comes out
    takes the place of the first: it is compared from the next update on.
    """

    def __init__(self, engine: Engine, sampler: Sampler) -> None:
        self._engine, self._sampler = engine, sampler
        self._rows: list[TrainSequence] = []  # each ends with the token that was sampled before the updates
        self._old: Sequence[float] = ()
        self._noise = 0.0
        self._left = UPDATES
        self.found: Moved | None = None

    async def before(self, batches: Sequence[TrainBatch]) -> None:
        """Look at what is about to be trained; done once, before the first update that trains anything."""
        if self._rows or not self._left:
            return
        rows = _least_likely([row for batch in batches for row in batch.sequences])
        if not rows:
            return
        sampled = await self._sample(rows, "before")
        self._rows = _with_tokens(rows, sampled)
        self._old = await self._score()
        self._noise = difference([each.logprobs[0] for each in sampled], self._old)

    async def after(self, step: int) -> None:
        """Compare, if the proof is not over.

        Raises:
            TrainingError: the sampler has the old weights.
        """
        if not self._rows:
            return
        self._left -= 1
        sampled = await self._sample(self._rows, str(step))
        before, self._rows = self._rows, _with_tokens(self._rows, sampled)
        new = await self._score()
        kept = [row.ids == now.ids for row, now in zip(before, self._rows, strict=True)]
        compared = zip(kept, sampled, self._old, new, strict=True)
        same = [(each.logprobs[0], *both) for is_kept, each, *both in compared if is_kept]
        if same:
            logprobs, before_updates, after_updates = zip(*same, strict=True)
            self.found = Moved.of(step, logprobs, before_updates, after_updates, self._noise)
            self.found.check()
            self._left = 0 if self.found.measurable else self._left
        self._old = [old if is_kept else now for is_kept, old, now in zip(kept, self._old, new, strict=True)]
        if not self._left:
            self._rows = []

    async def _score(self) -> Sequence[float]:
        """The trainer's log-prob of each row's last token."""
        return [each[0] for each in await self._engine.score(self._rows)]

    async def _sample(self, rows: Sequence[TrainSequence], when: str) -> list[SampledTokens]:
        """One token after each prefix."""
        sessions = [f"policy-moved/{when}/{number}" for number in range(len(rows))]
        self._engine.expect(sessions)
        params = [SamplingParams(1, seed=number, images=row.images) for number, row in enumerate(rows)]
        asked = zip(sessions, rows, params, strict=True)
        found = await gather_all(self._sampler.sample(row.ids[:-1], how, session=name) for name, row, how in asked)
        for session in sessions:
            await self._sampler.release(session)
        return found


def _with_tokens(rows: Sequence[TrainSequence], sampled: Sequence[SampledTokens]) -> list[TrainSequence]:
    """The rows with these as their last tokens."""
    return [replace(row, ids=(*row.ids[:-1], *each.token_ids)) for row, each in zip(rows, sampled, strict=True)]


def _least_likely(rows: Sequence[TrainSequence]) -> list[TrainSequence]:
    """Beginnings of trained sequences, each up to the sampled token that was the least likely, which moves the most."""
    found = []
    for row in rows:
        places = [place for place, own in enumerate(row.loss_mask) if own and place]
        place = min(places, key=lambda place: row.logprobs[place], default=0)
        if place:
            end = place + 1
            cut = replace(
                row, ids=row.ids[:end], logprobs=row.logprobs[:end], advantages=row.advantages[:end], taught=()
            )
            found.append((row.logprobs[place], replace(cut, loss_mask=(0,) * place + (1,))))
    return [row for _, row in sorted(found, key=lambda item: item[0])[:TOKENS]]
