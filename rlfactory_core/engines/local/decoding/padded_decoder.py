"""Decoding for models whose ragged forward failed its probe: waves of padded prompts through transformers' `generate`.

`generate` handles what a model family keeps between tokens (keys, states, convolutions), so every family is correct.
It is slower: a wave lasts as long as its slowest row, and each turn computes its whole trajectory again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from rlfactory_core.engines.local.decoding.decoder import Finished, Request, SlotDecoder, draw_uniforms, sample
from rlfactory_core.engines.local.model.half import computes_in_bfloat16, precision
from rlfactory_core.engines.local.model.logprobs import token_logprobs
from rlfactory_core.engines.local.model.pack import pack
from rlfactory_core.engines.local.model.policy import PaddedPolicy, Policy, RaggedPolicy
from rlfactory_core.errors import ModelError
from rlfactory_core.types import SampledTokens, SamplingParams, TrainSequence

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}  # of log-probs, the mean over tokens


def make_decoder(
    policy: Policy,
    *,
    slots: int,
    prefix: Sequence[int] | None,
    stop_token_ids: Sequence[int],
    version: int = 0,
    replaceable: bool = True,
) -> SlotDecoder | PaddedDecoder:
    """The decoder that fits ``policy``; see `SlotDecoder` for the arguments."""
    if isinstance(policy, RaggedPolicy):
        return SlotDecoder(
            policy,
            slots=slots,
            prefix=prefix,
            stop_token_ids=stop_token_ids,
            version=version,
            replaceable=replaceable,
        )
    assert isinstance(policy, PaddedPolicy)
    return PaddedDecoder(policy, slots=slots, version=version)


WAVES: tuple[tuple[tuple[int, ...], Callable[[Request], Any]], ...] = (
    ((5, 14), lambda request: None),
    ((9, 9), lambda request: len(request.ids)),
    ((9,), lambda request: request.session),
)
"""Lengths of prompts to try in a wave, and what requests have in common that may share one if the trial succeeds."""


class PaddedDecoder:
    """As `SlotDecoder`, for a `PaddedPolicy`: `admit` samples whole turns, so nothing is ever left active.

    The first call tries out on the model which rows may share a wave: any rows if the model ignores padding on the
    left, else rows of equal length, or none if the family keeps the state of one row only.

    Args:
        slots: the most rows of a wave.
    """

    active = 0

    def __init__(self, policy: PaddedPolicy, *, slots: int, version: int = 0) -> None:
        self.policy, self.slots, self.version = policy, slots, version
        self._alike: Callable[[Request], Any] | None = None

    def admissible(self, waiting: Sequence[Request]) -> list[Request]:
        return list(waiting[: self.slots])

    def admit(self, requests: Sequence[Request]) -> Finished:
        """Raises `ModelError` if the model's sampling, with its own cache, contradicts its forward pass."""
        if self._alike is None:
            self._alike = self._try_waves()
        waves: defaultdict[Any, list[Request]] = defaultdict(list)
        for request in requests:
            waves[self._alike(request)].append(request)
        return [turn for wave in waves.values() for turn in self._wave(wave)]

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
        # `generate` takes what an explicit configuration leaves open from the model's own. Hub models have repetition
        # penalties and the like there: the sampled distribution would not be the trained one.
        own = model.generation_config
        vision = self.policy.vision
        model.generation_config = GenerationConfig(
            max_new_tokens=turns.width,
            do_sample=False,
            pad_token_id=0,
            use_cache=True,
            suppress_tokens=None if vision is None else list(vision.reserved),
        )
        try:
            with precision(model):
                model.generate(
                    input_ids=ids.to(device),
                    attention_mask=mask.to(device),
                    **self.policy.inputs(ids, [request.params.images for request in requests]),
                    logits_processor=LogitsProcessorList([turns.force]),
                    stopping_criteria=StoppingCriteriaList([turns.ended]),
                )
        finally:
            model.generation_config = own
        return [(request, turns.result(row, self.version)) for row, request in enumerate(requests)]

    def _try_waves(self) -> Callable[[Request], Any]:
        for lengths, alike in WAVES:
            if self._agrees(*lengths):
                return alike
        raise ModelError(
            f"{type(self.policy.model).__name__} cannot be trained: the log-probs of its own generation differ from "
            "those of its forward pass. Use another model, or another version of transformers."
        )

    def _agrees(self, *lengths: int) -> bool:
        """Whether prompts of these lengths, sampled in one wave, get the log-probs of the training forward."""
        config = self.policy.model.config
        marks = (getattr(config, f"{name}_token_id", None) for name in ("vision_start", "image", "video"))  # of images
        high = min([config.get_text_config().vocab_size, *(mark for mark in marks if mark)])
        generator = torch.Generator().manual_seed(0)
        low = min(3, high - 1)
        prompts = [torch.randint(low, high, (size,), generator=generator).tolist() for size in lengths]
        requests = [Request(str(row), tuple(ids), SamplingParams(4, seed=row)) for row, ids in enumerate(prompts)]
        sequences: list[TrainSequence] = []
        sampled: list[float] = []
        for request, tokens in self._wave(requests):
            ids = (*request.ids, *tokens.token_ids)
            mask = (*[0] * len(request.ids), *[1] * len(tokens.token_ids))
            sequences.append(TrainSequence(ids, mask, (0.0,) * len(ids), (0.0,) * len(ids)))
            sampled += tokens.logprobs
        packed = pack(sequences, self.policy.device, share_prefix=False)
        with torch.no_grad():
            trained = token_logprobs(self.policy.target_logits(packed), packed.target_ids, 1.0)[0]
        error = float((trained.cpu() - torch.tensor(sampled)).abs().mean())
        model = self.policy.model
        dtype = torch.bfloat16 if computes_in_bfloat16(model) else next(model.parameters()).dtype
        return error <= TOLERANCE.get(dtype, 1e-3)  # False for NaN


class _Turns:
    """The turns of a wave while they are sampled; list item i holds the i-th token of each row."""

    def __init__(self, params: Sequence[SamplingParams], device: torch.device) -> None:
        self.params = params
        self.width = max(p.max_tokens for p in params)
        self.limit = torch.tensor([p.max_tokens for p in params], device=device)
        self.temperature = torch.tensor([p.temperature for p in params], device=device)
        self.top_p = torch.tensor([p.top_p for p in params], device=device)
        self.uniforms = draw_uniforms(params).to(device)
        self.tokens: list[Tensor] = []
        self.logprobs: list[Tensor] = []
        self.over = torch.zeros(len(params), dtype=torch.bool, device=device)

    def force(self, ids: Tensor, logits: Tensor) -> Tensor:
        """A logits processor: samples, and leaves only the sampled token to the argmax of `generate`.

        `result` ignores the tokens of rows that have ended.
        """
        step = len(self.tokens)
        if step < self.width:  # `generate` may look one token beyond the limit before it stops
            tokens, logprobs = sample(logits, self.uniforms[:, step], self.temperature, self.top_p)
            self.tokens.append(tokens)
            self.logprobs.append(logprobs)
            stopped = [token in p.stop_token_ids for token, p in zip(tokens.tolist(), self.params, strict=True)]
            self.over |= torch.tensor(stopped, device=self.over.device) | (step + 1 >= self.limit)
        return torch.full_like(logits, float("-inf")).scatter_(1, self.tokens[-1][:, None], 0.0)

    def ended(self, ids: Tensor, logits: Any, **kwargs: Any) -> Tensor:
        """A stopping criterion: which rows have ended."""
        return self.over

    def result(self, row: int, version: int) -> SampledTokens:
        params = self.params[row]
        tokens = [int(column[row]) for column in self.tokens[: params.max_tokens]]
        end = next((i + 1 for i, token in enumerate(tokens) if token in params.stop_token_ids), None)
        tokens = tokens[:end]
        logprobs = tuple(float(column[row]) for column in self.logprobs[: len(tokens)])
        return SampledTokens(tuple(tokens), logprobs, "length" if end is None else "stop", version)
