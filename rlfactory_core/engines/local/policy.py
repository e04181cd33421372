"""A Hugging Face causal LM as the policy: one face for sampling and learning, ragged or padded underneath."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rlfactory_core.engines.local import attention
from rlfactory_core.engines.local.onednn import padding_of, speed_up_linears
from rlfactory_core.engines.local.pack import Packed
from rlfactory_core.engines.local.plans import TrainPlan


class Policy(Protocol):
    """``model`` is the trainable module; ``kind`` is ``ragged`` or ``padded``."""

    kind: str
    model: nn.Module

    @property
    def device(self) -> torch.device: ...

    def target_logits(self, packed: Packed) -> Tensor:
        """Logits that predict each target, [T, vocabulary], differentiable."""
        ...


class RaggedPolicy:
    """No padding, the shared prefix computed once: through `attention`."""

    kind = "ragged"

    def __init__(self, model: Any) -> None:
        attention.register()
        model.set_attn_implementation(attention.NAME)
        speed_up_linears(model)
        self.model = model

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    def forward(self, ids: Tensor, positions: Tensor, plan: attention.Plan, keep: Tensor) -> Tensor:
        """ids [N], positions [1, N] -> logits [len(keep), vocabulary] at the kept positions."""
        output = self.model(
            input_ids=ids[None], position_ids=positions, use_cache=False, plan=plan, logits_to_keep=keep
        )
        logits: Tensor = output.logits[0]
        return logits

    def target_logits(self, packed: Packed) -> Tensor:
        prefix, tokens = len(packed.prefix), packed.flat_ids
        padding = padding_of(prefix + len(tokens))
        plan = TrainPlan(prefix, packed.lengths, tokens.device, padding)
        before = torch.where(packed.first, prefix - 1, packed.targets + prefix - 1)
        ids = torch.cat([packed.prefix, tokens, tokens.new_zeros(padding)])
        return self.forward(ids, plan.positions, plan, before)


class PaddedPolicy:
    """Any model that transformers runs, at the price of padding: where the ragged forward failed its probe."""

    kind = "padded"

    def __init__(self, model: Any) -> None:
        speed_up_linears(model)
        self.model = model

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    def target_logits(self, packed: Packed) -> Tensor:
        prefix, batch = len(packed.prefix), len(packed.lengths)
        width = prefix + max(packed.lengths)
        ids = packed.flat_ids.new_zeros(batch, width)
        mask = torch.zeros_like(ids)
        ids[:, :prefix] = packed.prefix
        start, rows, columns = 0, [], []
        for row, length in enumerate(packed.lengths):
            ids[row, prefix : prefix + length] = packed.flat_ids[start : start + length]
            mask[row, : prefix + length] = 1
            rows.append(torch.full((length,), row, device=ids.device))
            columns.append(torch.arange(prefix, prefix + length, device=ids.device))
            start += length
        logits = self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        picked: Tensor = logits[torch.cat(rows)[packed.targets], torch.cat(columns)[packed.targets] - 1]
        return picked


def token_logprobs(logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability of ``ids`` [T] and the distribution's entropy [T] (nats, without gradient), both float32.

    At temperature 0 (greedy sampling) the distribution at temperature 1 is meant.
    """
    scaled = logits.float()
    if temperature not in (0.0, 1.0):
        scaled = scaled / temperature
    full = torch.log_softmax(scaled, -1)
    with torch.no_grad():
        entropy = -(full.exp() * full).sum(-1)
    return full.gather(1, ids[:, None])[:, 0], entropy
