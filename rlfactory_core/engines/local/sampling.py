"""From logits to tokens: inverse-CDF sampling with one uniform number a row.

A row's uniform numbers are drawn from its own seed, so what a trajectory samples does not depend on which others are
decoded beside it (up to rounding in the logits), and nothing random has to be saved for a resume.
"""

from __future__ import annotations

import torch
from torch import Tensor


def draw_uniforms(seed: int, count: int) -> Tensor:
    """[count] numbers in [0, 1) that belong to ``seed``."""
    generator = torch.Generator().manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)
    return torch.rand(count, generator=generator)


def sample(logits: Tensor, uniforms: Tensor, temperature: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:
    """One token a row.

    Args:
        logits: [n, vocabulary].
        uniforms, temperature, top_p: [n]; temperature 0 is greedy.

    Returns:
        tokens [n] and their log-probs [n] at the row's temperature (at 1 for greedy rows), before top-p.
    """
    scale = torch.where(temperature > 0, temperature, torch.ones_like(temperature))
    probs = torch.softmax(logits.float() / scale[:, None], -1)
    kept = probs if bool((top_p >= 1).all()) else _nucleus(probs, top_p)
    # multinomial and Gumbel noise draw one exponential a row *and token*: more than half of a tiny model's decode time.
    cdf = kept.cumsum(-1)
    drawn = torch.searchsorted(cdf, uniforms[:, None] * cdf[:, -1:], right=True)[:, 0].clamp_(max=probs.shape[1] - 1)
    tokens = torch.where(temperature > 0, drawn, probs.argmax(-1))
    return tokens, probs.gather(1, tokens[:, None])[:, 0].clamp_min(1e-30).log()


def _nucleus(probs: Tensor, top_p: Tensor) -> Tensor:
    """Zero the tail beyond the smallest set whose mass reaches top_p (Holtzman et al. 2020, arXiv 1904.09751)."""
    ordered, order = probs.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    return torch.zeros_like(probs).scatter(1, order, ordered.masked_fill(before >= top_p[:, None], 0.0))
