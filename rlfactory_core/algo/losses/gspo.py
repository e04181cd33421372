"""The sequence's own ratio, clipped."""

from __future__ import annotations

from rlfactory_core.algo.losses.tokens import CLIP_FRACTION, Clip, Tensor, TokenLoss, Tokens


def gspo(tokens: Tokens, clip: Clip) -> TokenLoss:
    """-min(s A, clip(s) A) with s, the geometric mean of the ratios of a sequence: Zheng et al. 2025, arXiv 2507.18071.

    Each token has the value of its sequence and the gradient of its own log-prob (GSPO-token, equation 13), so that
    advantages may differ between tokens. Its clip range is two orders of magnitude narrower than PPO's: the paper uses
    3e-4 and 4e-4.
    """
    mean = _sequence_means(tokens.logprobs.detach() - tokens.anchor, tokens.sequence)
    ratio = (tokens.logprobs - tokens.logprobs.detach() + mean).exp()
    free = ratio * tokens.advantages
    surrogate = free.minimum(clip(ratio) * tokens.advantages)
    return TokenLoss(-surrogate, {CLIP_FRACTION: surrogate < free})


def _sequence_means(values: Tensor, sequence: Tensor) -> Tensor:
    """The mean over each token's sequence, [T]."""
    size = int(sequence.max()) + 1 if len(sequence) else 0
    sums = values.new_zeros(size).index_add_(0, sequence, values)
    counts = values.new_zeros(size).index_add_(0, sequence, values.new_ones(values.shape))
    return (sums / counts.clamp_min(1.0))[sequence]
