"""One attention function, registered with transformers, through which any causal LM runs unpadded.

A model set to this implementation is called with ``input_ids`` [1, N], ``position_ids`` [1, N] and ``plan=…``: all
tokens of all trajectories in one row. Extra keyword arguments travel through the model to the attention function, and
the plan knows which query may see which key. Nothing is registered for masks, so transformers builds none.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface

NAME = "rlfactory_ragged"


class Plan(Protocol):
    """Which token attends to which, for one forward pass."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        """q [1, heads, N, dim], k and v [1, kv_heads, N, dim] -> [1, N, heads, dim]; window in tokens, or None."""
        ...


class UnsupportedAttentionError(NotImplementedError):
    """The model asks its attention for something that a plan cannot do; the padded forward is used instead."""


def ragged_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    plan: Plan | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in every layer."""
    if plan is None:
        raise UnsupportedAttentionError("the model does not pass keyword arguments on to its attention")
    if dropout or attention_mask is not None:
        raise UnsupportedAttentionError("attention dropout or a mask of the model's own")
    if kwargs.get("softcap") or kwargs.get("s_aux") is not None:
        raise UnsupportedAttentionError("attention soft-capping or sinks")
    scale = scaling if scaling is not None else float(query.shape[-1]) ** -0.5
    return plan.attend(int(module.layer_idx), query, key, value, scale, sliding_window), None  # type: ignore[arg-type]


def register() -> None:
    """Make ``attn_implementation=NAME`` known to transformers; harmless when repeated."""
    AttentionInterface.register(NAME, ragged_attention)
