"""What crosses from verl's trainer to its rollout workers and back, for one prompt and one trajectory."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from rlfactory_core.evaluation import EvalPass
from rlfactory_core.types import Sample

FIELD = "rlfactory"  # the name of our column in verl's batches, and of our entry in its ``extra_fields``


@dataclass(frozen=True, slots=True)
class Work:
    """One prompt to be played.

    Args:
        seed: attempt i is played with ``derive_seed(seed, sample.id, i)``, as in the local engine.
        session: attempt i is the session ``"<session>/<i>"``.
        how: the evaluation pass that it belongs to; None in training.
    """

    sample: Sample
    seed: int
    session: str
    temperature: float
    how: EvalPass | None = None

    def dumps(self) -> bytes:
        """As bytes, because only a process that has loaded the plugin can unpickle what its samples may hold."""
        return pickle.dumps(self)

    @staticmethod
    def loads(data: bytes) -> Work:
        work = pickle.loads(data)  # noqa: S301 - from this run's own trainer
        assert isinstance(work, Work)
        return work
