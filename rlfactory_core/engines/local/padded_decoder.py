"""Decoding for models whose ragged forward failed its probe: waves of padded prompts through transformers' `generate`.

What a family keeps between tokens (keys, states, convolutions) is `generate`'s business, so every family is right; the
price is that a wave ends with its slowest row and that each turn reads its whole trajectory anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from rlfactory_core.engines.local.decoder import Finished, Request
from rlfactory_core.engines.local.pack import pack
from rlfactory_core.engines.local.policy import PaddedPolicy, token_logprobs
from rlfactory_core.engines.local.sampling import draw_uniforms, sample
from rlfactory_core.errors import ModelError
from rlfactory_core.types import SampledTokens, SamplingParams, TrainSequence

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}  # of log-probs, the mean over tokens


class PaddedDecoder:
    """`decoder.Decoder` for a `PaddedPolicy`: `admit` samples whole turns, so nothing is ever left active.

    Which rows may share a wave is tried out on the model at the first call: any, where it ignores padding on the left;
    those of equal length; or, in families whose states are kept for one row only, none.

    Args:
        slots: rows of a wave at most.
    """

    active = 0

    def __init__(self, policy: PaddedPolicy, *, slots: int, version: int = 0) -> None:
        self.policy, self.slots, self.version = policy, slots, version
        self._shares: Literal["any", "equal", "none"] | None = None

    def admissible(self, waiting: Sequence[Request]) -> list[Request]:
        return list(waiting[: self.slots])

    def admit(self, requests: Sequence[Request]) -> Finished:
        """Raises `ModelError` where the model, sampling with its own cache, contradicts its own forward pass."""
        if self._shares is None:
            self._shares = self._try_waves()
        if self._shares == "any":
            return self._wave(requests)
        by_length = sorted(requests, key=lambda request: len(request.ids))
        waves = [list(wave) for _, wave in groupby(by_length, lambda request: len(request.ids))]
        if self._shares == "none":
            waves = [[request] for request in requests]
        return [turn for wave in waves for turn in self._wave(wave)]

    def step(self) -> Finished:
        return []

    def release(self, session: str) -> None:
        """Nothing is kept between turns."""

    def weights_changed(self, version: int) -> None:
        self.version = version

    def _wave(self, requests: Sequence[Request]) -> Finished:
        model, device = self.policy.model, self.policy.device
        width = max(len(request.ids) for request in requests)
        ids = torch.zeros(len(requests), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, request in enumerate(requests):
            ids[row, width - len(request.ids) :] = torch.tensor(request.ids)
            mask[row, width - len(request.ids) :] = 1
        turns = _Turns([request.params for request in requests], device)
        # `generate` fills what an explicit configuration leaves open from the model's own, and hub models bring
        # repetition penalties and the like: the sampled distribution would not be the trained one.
        own = model.generation_config
        model.generation_config = GenerationConfig(
            max_new_tokens=turns.width, do_sample=False, pad_token_id=0, use_cache=True
        )
        try:
            model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                logits_processor=LogitsProcessorList([_Chooser(turns)]),
                stopping_criteria=StoppingCriteriaList([_AllDone(turns)]),
            )
        finally:
            model.generation_config = own
        return [(request, turns.result(row, self.version)) for row, request in enumerate(requests)]

    def _try_waves(self) -> Literal["any", "equal", "none"]:
        if self._agrees(5, 14):
            return "any"
        if self._agrees(9, 9):
            return "equal"
        if self._agrees(9):
            return "none"
        raise ModelError(
            f"{type(self.policy.model).__name__} cannot be trained: the log-probs of its own generation differ from "
            "those of its forward pass. Use another model, or another version of transformers."
        )

    def _agrees(self, *lengths: int) -> bool:
        """Whether prompts of these lengths, sampled in one wave, get the log-probs of the training forward."""
        config = self.policy.model.config.get_text_config()
        generator = torch.Generator().manual_seed(0)
        low = min(3, config.vocab_size - 1)
        prompts = [torch.randint(low, config.vocab_size, (size,), generator=generator).tolist() for size in lengths]
        requests = [Request(str(row), tuple(ids), SamplingParams(4, seed=row)) for row, ids in enumerate(prompts)]
        sequences: list[TrainSequence] = []
        sampled: list[float] = []
        for request, tokens in self._wave(requests):
            context, turn = [0] * len(request.ids), len(tokens.token_ids)
            zeros = (0.0,) * (len(context) + turn)
            mask = (*context, *[1] * turn)
            sequences.append(TrainSequence((*request.ids, *tokens.token_ids), mask, zeros, zeros))
            sampled += tokens.logprobs
        packed = pack(sequences, self.policy.device, share_prefix=False)
        with torch.no_grad():
            trained = token_logprobs(self.policy.target_logits(packed), packed.target_ids, 1.0)[0]
        error = float((trained.cpu() - torch.tensor(sampled)).abs().mean())
        return error <= TOLERANCE.get(next(self.policy.model.parameters()).dtype, 1e-3)  # False for NaN


class _Turns:
    """The turns of a wave while they are sampled; column i holds each row's i-th token."""

    def __init__(self, params: Sequence[SamplingParams], device: torch.device) -> None:
        self.params = params
        self.width = max(p.max_tokens for p in params)
        self.limit = torch.tensor([p.max_tokens for p in params], device=device)
        self.temperature = torch.tensor([p.temperature for p in params], device=device)
        self.top_p = torch.tensor([p.top_p for p in params], device=device)
        uniforms = torch.zeros(len(params), self.width)
        for row, p in zip(uniforms, params, strict=True):
            if p.temperature > 0:
                row[: p.max_tokens] = draw_uniforms(p.seed, p.max_tokens)
        self.uniforms = uniforms.to(device)
        self.tokens: list[Tensor] = []
        self.logprobs: list[Tensor] = []
        self.over = torch.zeros(len(params), dtype=torch.bool, device=device)

    def choose(self, logits: Tensor) -> Tensor:
        """The next token of each row, [n]; rows that are over go on with what is ignored later."""
        step = len(self.tokens)
        if step >= self.width:  # `generate` may look one token beyond the limit before it stops
            return self.tokens[-1]
        tokens, logprobs = sample(logits, self.uniforms[:, step], self.temperature, self.top_p)
        self.tokens.append(tokens)
        self.logprobs.append(logprobs)
        stopped = [token in p.stop_token_ids for token, p in zip(tokens.tolist(), self.params, strict=True)]
        self.over |= torch.tensor(stopped, device=self.over.device) | (step + 1 >= self.limit)
        return tokens

    def result(self, row: int, version: int) -> SampledTokens:
        params = self.params[row]
        tokens = [int(column[row]) for column in self.tokens[: params.max_tokens]]
        end = next((i + 1 for i, token in enumerate(tokens) if token in params.stop_token_ids), None)
        tokens = tokens[:end]
        logprobs = tuple(float(column[row]) for column in self.logprobs[: len(tokens)])
        return SampledTokens(tuple(tokens), logprobs, "length" if end is None else "stop", version)


class _Chooser(LogitsProcessor):
    """Samples, and leaves `generate`'s argmax no choice."""

    def __init__(self, turns: _Turns) -> None:
        self.turns = turns

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        chosen = self.turns.choose(scores)
        return torch.full_like(scores, float("-inf")).scatter_(1, chosen[:, None], 0.0)


class _AllDone(StoppingCriteria):
    def __init__(self, turns: _Turns) -> None:
        self.turns = turns

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        return self.turns.over
