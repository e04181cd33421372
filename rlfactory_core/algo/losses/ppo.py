"""PPO's clipped surrogate."""

from __future__ import annotations

from rlfactory_core.algo.losses.tokens import CLIP_FRACTION, Clip, TokenLoss, Tokens


def ppo(tokens: Tokens, clip: Clip) -> TokenLoss:
    """-min(r A, clip(r) A) with the token's ratio r: Schulman et al. 2017, arXiv 1707.06347.

    GRPO (arXiv 2402.03300) and Dr. GRPO (arXiv 2503.20783) use it with their advantages and aggregations; DAPO (arXiv
    2503.14476) with a higher upper bound.
    """
    ratio = (tokens.logprobs - tokens.anchor).exp()
    free = ratio * tokens.advantages
    surrogate = free.minimum(clip(ratio) * tokens.advantages)
    return TokenLoss(-surrogate, {CLIP_FRACTION: surrogate < free})
