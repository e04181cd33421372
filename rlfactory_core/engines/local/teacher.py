"""A teacher for on-policy distillation: a second, frozen model in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

import torch

from rlfactory_core.engines.local.learning.learner import score
from rlfactory_core.engines.local.model.half import compute_in_bfloat16
from rlfactory_core.engines.local.model.loading import chooses_bfloat16_products, load_pretrained, make_policy
from rlfactory_core.engines.local.model.pack import split
from rlfactory_core.engines.local.model.policy import Policy
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.errors import ConfigError
from rlfactory_core.types import TrainSequence


class LocalTeacher:
    """See `engines.base.Teacher`.

    Args:
        load: its model, when the first sequence is scored.
        thread: on which it computes; None: one of its own.
        microbatch_tokens: the most tokens of a forward pass; a longer sequence has one of its own.
    """

    def __init__(self, load: Callable[[], Policy], thread: Executor | None, microbatch_tokens: int) -> None:
        self._load, self._budget = load, microbatch_tokens
        self._own = ThreadPoolExecutor(1, "rlfactory-teacher") if thread is None else None
        self._thread = thread or self._own
        self._policy: Policy | None = None

    async def score(self, sequences: Sequence[TrainSequence]) -> Sequence[Sequence[float]]:
        run = asyncio.get_running_loop().run_in_executor
        policy, found = await run(self._thread, self._loaded), dict[int, list[float]]()
        share = policy.kind == "ragged"
        for part in split(sequences, self._budget, share_prefix=share):
            scored = await run(self._thread, partial(_score, policy, part, share_prefix=share))
            found |= zip(map(id, part), scored, strict=True)
        return [found[id(each)] for each in sequences]

    def _loaded(self) -> Policy:
        """In the thread, where one call waits for the other."""
        self._policy = self._policy or self._load()
        return self._policy

    async def close(self) -> None:
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)


@torch.no_grad()
def _score(policy: Policy, sequences: Sequence[TrainSequence], *, share_prefix: bool) -> list[list[float]]:
    return score(policy, sequences, share_prefix=share_prefix)


def load_teacher(model: str, device: torch.device, dtype: torch.dtype, config: EngineSettings) -> Policy:
    """A folder's or a hub id's model, frozen; it multiplies as the policy does. Raises as `load_pretrained`."""
    policy, _ = make_policy(load_pretrained(model, device, dtype)[0], max_tokens=config.rollout.max_tokens)
    policy.model.requires_grad_(requires_grad=False)
    if device.type == "cpu" and chooses_bfloat16_products(config, policy.model.num_parameters()):
        compute_in_bfloat16(policy.model)
    return policy


def check_vocabulary(teacher: str, trained: Mapping[str, int], its: Mapping[str, int]) -> None:
    """Raises a `ConfigError` unless the teacher has each token of the trained model's tokenizer, with the same id."""
    different = sorted((number, token) for token, number in trained.items() if its.get(token) != number)
    if different:
        number, token = different[0]
        there = {other: text for text, other in its.items()}.get(number)
        raise ConfigError(
            f"train.teacher={teacher}: its tokenizer is another one than that of the model. Of {len(trained):,} tokens "
            f"{len(different):,} have other ids; the first is {number}: {token!r} for the model, "
            f"{'no token' if there is None else repr(there)} for the teacher. A teacher judges the very tokens that "
            "the model samples, so it has to have them all: choose one of the same family, or train on its traces "
            "(train.method=sft)."
        )
