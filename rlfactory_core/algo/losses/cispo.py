"""A clipped importance weight on the policy gradient of every token."""

from __future__ import annotations

from rlfactory_core.algo.losses.tokens import CLIP_FRACTION, Clip, TokenLoss, Tokens


def cispo(tokens: Tokens, clip: Clip) -> TokenLoss:
    """-sg(clip(r)) A log p, so that no token loses its gradient: MiniMax-M1, arXiv 2506.13585.

    The paper bounds r only above; with ``clip_low`` of 1 so does this.
    """
    ratio = (tokens.logprobs.detach() - tokens.anchor).exp()
    weight = clip(ratio)
    return TokenLoss(-weight * tokens.advantages * tokens.logprobs, {CLIP_FRACTION: weight != ratio})
