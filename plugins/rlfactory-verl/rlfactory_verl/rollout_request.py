"""What verl's trainer sends to its rollout workers for one prompt, and where its trajectories belong."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from rlfactory_core.algo import EvalPass
from rlfactory_core.types import Sample

FIELD = "rlfactory"  # the name of our column in verl's batches, and of our entry in its ``extra_fields``
POSITION = "rlfactory_position"  # our other entries in ``extra_fields``
IMAGES = "rlfactory_images"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Identifies a prompt of the run.

    Args:
        part: ``train``, or the name of the evaluation pass.
        step: of the training schedule, from 1; 0 in an evaluation.
        index: in the step or the pass, from 0.
    """

    part: str
    step: int
    index: int


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """One prompt to play.

    Args:
        seed: attempt i is played with ``derive_seed(seed, sample.id, i)``, as in the local engine.
        how: the evaluation pass to which it belongs; None in training.
    """

    sample: Sample
    seed: int
    position: Position
    temperature: float
    how: EvalPass | None = None

    @property
    def session(self) -> str:
        """Attempt i is the session ``"<session>/<i>"``."""
        return f"{self.position.step or self.position.part}/{self.position.index}"

    def dumps(self) -> bytes:
        """As bytes, because only a process that has loaded the plugin can unpickle its samples."""
        return pickle.dumps(self)

    @staticmethod
    def loads(data: bytes) -> RolloutRequest:
        request = pickle.loads(data)  # noqa: S301 - from this run's own trainer
        assert isinstance(request, RolloutRequest)
        return request
