"""Negative log-likelihood: what is shown becomes likelier."""

from __future__ import annotations

from rlfactory_core.algo.losses.tokens import Clip, TokenLoss, Tokens


def nll(tokens: Tokens, _clip: Clip) -> TokenLoss:
    """-A log p: the loss of supervised training, with the weight A of a token (1, or less for some tokens)."""
    return TokenLoss(-tokens.logprobs * tokens.advantages, {"nll": -tokens.logprobs})
