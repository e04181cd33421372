"""The loss on demonstrations that are never trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

from rlfactory_core.engines.base import Engine
from rlfactory_core.training.methods.imitation import Imitation
from rlfactory_core.training.sources import Source
from rlfactory_core.types import TrainSequence
from rlfactory_core.utils.aio import gather_all

SAMPLES = 32  # at most, of all processes


@dataclass(slots=True)
class HeldOutLoss:
    """Plays a source's held-out demonstrations once, and then scores them each time; in all processes together."""

    engine: Engine
    source: Source
    method: Imitation
    _rows: Sequence[TrainSequence] | None = field(default=None, init=False)  # this process's share

    async def metrics(self) -> Mapping[str, float]:
        """``eval/nll``, the mean over all tokens, in the first process; empty if there is none."""
        if self._rows is None:
            self._rows = await self._play()
        found = [logprobs for part in self._parts() for logprobs in await self.engine.score(part)]
        shares = await self.engine.processes.gather((fsum(map(fsum, found)), sum(map(len, found))))
        tokens = sum(count for _, count in shares)
        return {"eval/nll": -fsum(total for total, _ in shares) / tokens} if tokens else {}

    async def _play(self) -> Sequence[TrainSequence]:
        samples = self.engine.processes.share(self.source.held_out[:SAMPLES])
        how = {"attempts": 1, "temperature": 0.0, "seed": 0}
        groups = await gather_all(
            self.source.play(sample, session=f"held-out/{number}", **how) for number, sample in enumerate(samples)
        )
        return [row for batch in self.method.batches(groups, 0)[:1] for row in batch.sequences]

    def _parts(self) -> Iterator[list[TrainSequence]]:
        """The rows, in parts that fit a micro-batch."""
        part: list[TrainSequence] = []
        for row in self._rows or ():
            if part and sum(len(each.ids) for each in (*part, row)) > self.method.train.microbatch_tokens:
                yield part
                part = []
            part.append(row)
        if part:
            yield part
