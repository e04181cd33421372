"""Log-probs and entropies of logits, in float32, without a second copy of the logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

AT_ONCE = 2**24  # logits that are held in float32 at a time


def token_logprobs(logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs of ``ids``, [T] or [T, K], and the distribution's entropy [T] (nats, without gradient), both float32.

    For temperature 0 (greedy sampling) both are taken at temperature 1. Of logits [T, vocabulary] only `AT_ONCE` are
    held in float32 at a time, and the backward pass computes the probabilities again.
    """
    columns = ids if ids.ndim > 1 else ids[:, None]
    found: tuple[Tensor, Tensor] = _TokenLogprobs.apply(logits, columns, temperature or 1.0)  # type: ignore[no-untyped-call]
    return found[0].view(ids.shape), found[1]


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        totals, entropies = (logits.new_empty(len(ids), dtype=torch.float32) for _ in range(2))
        logprobs = logits.new_empty(ids.shape, dtype=torch.float32)
        for rows in _parts(logits):
            scaled = logits[rows].float() / temperature if temperature != 1.0 else logits[rows].float()
            total = torch.logsumexp(scaled, -1)
            logprobs[rows] = scaled.gather(1, ids[rows]) - total[:, None]
            probabilities = (scaled - total[:, None]).exp_()
            totals[rows] = total
            entropies[rows] = total - probabilities.mul_(scaled).sum(-1)
        ctx.save_for_backward(logits, ids, totals)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits, ids, totals = ctx.saved_tensors
        of_logits, seen = torch.empty_like(logits), gradients[0] / ctx.temperature
        for rows in _parts(logits):
            part = (logits[rows].float() / ctx.temperature).sub_(totals[rows, None]).exp_()
            part.mul_(-seen[rows].sum(1, keepdim=True)).scatter_add_(1, ids[rows], seen[rows])
            of_logits[rows] = part
        return of_logits, None, None


def _parts(logits: Tensor) -> Iterator[slice]:
    rows = max(1, AT_ONCE // logits.shape[1])
    return (slice(start, start + rows) for start in range(0, len(logits), rows))
