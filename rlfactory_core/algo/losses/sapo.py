"""A soft gate in the place of clipping."""

from __future__ import annotations

from rlfactory_core.algo.losses.tokens import Clip, TokenLoss, Tokens

TAU_POSITIVE, TAU_NEGATIVE = 1.0, 1.05  # the paper's temperatures, by the sign of the advantage


def sapo(tokens: Tokens, _clip: Clip) -> TokenLoss:
    """-(4 / tau) sigmoid(tau (r - 1)) A, whose gradient fades as r leaves 1: Gao et al. 2025, arXiv 2511.20347."""
    ratio = (tokens.logprobs - tokens.anchor).exp()
    positive = ratio.new_full(ratio.shape, TAU_POSITIVE)
    tau = positive.where(tokens.advantages > 0, ratio.new_full(ratio.shape, TAU_NEGATIVE))
    gate = (tau * (ratio - 1.0)).sigmoid() * 4.0 / tau
    return TokenLoss(-gate * tokens.advantages)
