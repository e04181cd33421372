"""The arguments and the result of a policy loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Tensor: TypeAlias = Any
"""A tensor of PyTorch, which only the engines import."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """T sampled tokens; all tensors are [T].

    Args:
        logprobs: under the weights being trained, with gradient.
        anchor: under the policy to which the ratio is relative.
        sequence: the number of each token's sequence, from 0.
    """

    logprobs: Tensor
    anchor: Tensor
    advantages: Tensor
    sequence: Tensor


@dataclass(frozen=True, slots=True)
class Clip:
    """The bounds 1 - low and 1 + high of a ratio."""

    low: float = 0.2
    high: float = 0.28

    def __call__(self, ratio: Tensor) -> Tensor:
        return ratio.clamp(1.0 - self.low, 1.0 + self.high)


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """A loss before its aggregation, and what it reports; all tensors are [T]."""

    loss: Tensor  # carries the gradient
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    """Metric of the step -> its value for each token. The step has their mean over all tokens."""


PolicyLoss = Callable[[Tokens, Clip], TokenLoss]

CLIP_FRACTION = "clip_fraction"
"""The metric of the losses that clip: 1 for a token whose gradient clipping has removed or bounded."""
