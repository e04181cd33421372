"""The clipped policy-gradient loss of GRPO, summed over sampled tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LossOptions:
    """The ratio is clipped to [1 - clip_low, 1 + clip_high]; 0.2 and 0.28 are DAPO's (arXiv 2503.14476)."""

    clip_low: float = 0.2
    clip_high: float = 0.28
    kl: float = 0.0
    truncate: float | None = None  # cap of the importance weight old / behaviour; None: ``old`` is the behaviour policy


@dataclass(frozen=True, slots=True)
class LossSums:
    """Sums over a micro-batch's T sampled tokens; ``loss`` carries the gradient."""

    loss: Tensor
    clipped: Tensor  # number of tokens whose gradient clipping removed
    kl: Tensor  # to the start model
    mismatch: Tensor  # KL estimate of behaviour to current policy
    weight: Tensor  # importance weights, all 1 when on-policy


def policy_loss(
    logprobs: Tensor,
    behaviour: Tensor,
    advantages: Tensor,
    options: LossOptions,
    *,
    old: Tensor | None = None,
    reference: Tensor | None = None,
) -> LossSums:
    """PPO's clipped surrogate (Schulman et al. 2017, arXiv 1707.06347) with GRPO's group advantages (arXiv 2402.03300).

    Args:
        logprobs: [T] under the weights being trained, with gradient.
        behaviour: [T] as recorded when sampling.
        advantages: [T].
        old: [T] under the weights at the start of this step; given if the behaviour policy is older than that. The
            ratio is then relative to ``old``, and each token has the weight old / behaviour, at most
            ``options.truncate`` (truncated importance sampling: IMPALA, arXiv 1802.01561; decoupled PPO, arXiv
            2110.00641).
        reference: [T] under the start model, for the KL term, estimated as in GRPO: exp(d) - d - 1 with
            d = reference - logprobs (Schulman's k3).
    """
    anchor = behaviour if old is None else old
    ratio = (logprobs - anchor).exp()
    clipped = ratio.clamp(1.0 - options.clip_low, 1.0 + options.clip_high)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    weight = torch.ones_like(behaviour)
    if old is not None and options.truncate is not None:
        weight = (old - behaviour).exp().clamp_max(options.truncate)
    loss = -(weight * surrogate)
    kl = torch.zeros_like(behaviour)
    if reference is not None:
        drift = reference - logprobs
        kl = drift.exp() - drift - 1.0
        loss = loss + options.kl * kl
    with torch.no_grad():
        gap = logprobs - behaviour
        mismatch = gap.exp() - gap - 1.0
        lost = (surrogate < ratio * advantages).sum()
    return LossSums(loss.sum(), lost, kl.detach().sum(), mismatch.sum(), weight.sum())
