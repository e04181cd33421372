"""What every policy loss gets, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


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
    """A loss before its aggregation; both tensors are [T]."""

    loss: Tensor  # carries the gradient
    clipped: Tensor  # bool: clipping has removed or bounded the token's gradient


PolicyLoss = Callable[[Tokens, Clip], TokenLoss]
