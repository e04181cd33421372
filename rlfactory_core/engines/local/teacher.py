"""A teacher for on-policy distillation: a second, frozen model in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

import torch

from rlfactory_core.engines.local.model.half import compute_in_bfloat16
from rlfactory_core.engines.local.model.loading import chooses_bfloat16_products, load_pretrained, make_policy
from rlfactory_core.engines.local.model.logprobs import token_logprobs
from rlfactory_core.engines.local.model.pack import pack, split
from rlfactory_core.engines.local.model.policy import Policy
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.errors import ConfigError
from rlfactory_core.types import TaughtToken, TrainSequence


class LocalTeacher:
    """See `engines.base.Teacher`.

    Args:
        load: its model, when the first sequence is scored.
        thread: on which it computes; None: one of its own.
        microbatch_tokens: the most tokens of a forward pass; a longer sequence has one of its own.
        vocabulary: the number of ids that the trained model knows; the teacher names no others.
    """

    def __init__(
        self, load: Callable[[], Policy], thread: Executor | None, microbatch_tokens: int, vocabulary: int
    ) -> None:
        self._load, self._budget, self._vocabulary = load, microbatch_tokens, vocabulary
        self._own = ThreadPoolExecutor(1, "rlfactory-teacher") if thread is None else None
        self._thread = thread or self._own
        self._policy: Policy | None = None

    async def score(self, sequences: Sequence[TrainSequence], likely: int = 0) -> Sequence[Sequence[TaughtToken]]:
        run = asyncio.get_running_loop().run_in_executor
        policy, found = await run(self._thread, self._loaded), dict[int, list[TaughtToken]]()
        share = policy.kind == "ragged"
        for part in split(sequences, self._budget, share_prefix=share):
            scored = await run(self._thread, self._score, policy, part, likely, share)
            found |= zip(map(id, part), scored, strict=True)
        return [found[id(each)] for each in sequences]

    @torch.no_grad()
    def _score(
        self, policy: Policy, sequences: Sequence[TrainSequence], likely: int, share_prefix: bool
    ) -> list[list[TaughtToken]]:
        packed = pack(sequences, policy.device, share_prefix=share_prefix)
        logits = policy.target_logits(packed)
        best = logits[:, : self._vocabulary].topk(min(likely, self._vocabulary), -1).indices
        logprobs = token_logprobs(logits, torch.cat([packed.target_ids[:, None], best], 1), 1.0)[0].tolist()
        found: list[list[TaughtToken]] = [[] for _ in sequences]
        for number, (own, *others), ids in zip(packed.sequence.tolist(), logprobs, best.tolist(), strict=True):
            found[number].append(TaughtToken(own, tuple(ids), tuple(others)))
        return found

    def _loaded(self) -> Policy:
        """In the thread, where one call waits for the other."""
        self._policy = self._policy or self._load()
        return self._policy

    async def close(self) -> None:
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)


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
