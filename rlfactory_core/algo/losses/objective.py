"""The loss of a micro-batch: a policy loss, the correction of older samples, and the KL term, with their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlfactory_core.algo.losses.ppo import ppo
from rlfactory_core.algo.losses.tokens import Clip, PolicyLoss, Tensor, Tokens

SMALLEST = 1e-6  # probability of all other ids, below the rounding of a sum in float32
NO_ID = 1.0  # in the place of a log-prob, where a teacher names fewer ids


@dataclass(frozen=True, slots=True)
class LossOptions:
    """Ratios are clipped to [1 - clip_low, 1 + clip_high]; 0.2 and 0.28 are DAPO's (arXiv 2503.14476)."""

    clip_low: float = 0.2
    clip_high: float = 0.28
    kl: float = 0.0
    truncate: float | None = None  # cap of the importance weights of the decoupled objective; None: the plain one
    loss: PolicyLoss = ppo
    temperature: float = 1.0  # at which the trajectories were sampled
    sampled: bool = True  # by the policy; False: tokens that somebody wrote, to which no ratio is relative


@dataclass(frozen=True, slots=True)
class LossSums:
    """Sums over a micro-batch's T sampled tokens."""

    loss: Tensor  # carries the gradient
    metrics: Mapping[str, Tensor]  # without gradient


def objective(
    logprobs: Tensor,
    behaviour: Tensor,
    advantages: Tensor,
    options: LossOptions,
    *,
    sequence: Tensor | None = None,
    old: Tensor | None = None,
    reference: Tensor | None = None,
    teacher: tuple[Tensor, Tensor] | None = None,
) -> LossSums:
    """The loss that ``options`` name.

    Its ratio is relative to the behaviour policy. So clipping bounds how far an update goes from the policy that
    sampled a token, however old that is, and the ratio is the token's importance weight.

    With ``options.truncate`` the objective is decoupled (arXiv 2110.00641; AReaL, arXiv 2505.24298): the ratio is
    relative to ``old``, and each token has the weight old / behaviour, truncated (IMPALA, arXiv 1802.01561). Clipping
    bounds the steps of one update then, and nothing the distance to the behaviour policy.

    Tokens that are not ``options.sampled`` have no behaviour policy: ratios are 1, and no metric compares the two.

    The metrics are those of the policy loss, ``loss``, ``kl`` to the start model, ``mismatch_kl`` (a KL estimate of
    behaviour to current policy), ``importance_weight`` (1 when on-policy) and ``weight_square``, its square.

    Args:
        logprobs: [T] under the weights being trained, with gradient.
        behaviour: [T] as recorded when sampling.
        advantages: [T].
        sequence: [T] the number of each token's sequence, from 0; None: all are of one.
        old: [T] under the weights at the start of the step, for the decoupled objective; None: the weights have not
            changed since.
        reference: [T] under the start model, for the KL term, estimated as in GRPO: exp(d) - d - 1 with
            d = reference - logprobs (Schulman's k3).
        teacher: [T, K] the log-probs of its likeliest ids, the policy's with gradient and its own: see `likely_kl`.
    """
    sequence = behaviour.new_zeros(behaviour.shape).long() if sequence is None else sequence
    now = logprobs.detach()
    behaviour = behaviour if options.sampled else now
    anchor = behaviour if options.truncate is None else now if old is None else old
    found = options.loss(Tokens(logprobs, anchor, advantages, sequence), Clip(options.clip_low, options.clip_high))
    weight, loss = (now - behaviour).exp(), found.loss
    if options.truncate is not None:
        weight = (anchor - behaviour).exp().clamp_max(options.truncate)
        loss = weight * found.loss
    kl = behaviour.new_zeros(behaviour.shape)
    if reference is not None:
        drift = reference - logprobs
        kl = drift.exp() - drift - 1.0
        loss = loss + options.kl * kl
    if teacher is not None:
        loss = loss + likely_kl(*teacher)
    gap = now - behaviour
    metrics = {**found.metrics, "loss": loss, "kl": kl}
    if options.sampled:
        metrics["mismatch_kl"] = gap.exp() - gap - 1.0
        metrics |= {"importance_weight": weight, "weight_square": weight * weight}
    return LossSums(loss.sum(), {name: values.detach().sum() for name, values in metrics.items()})


def likely_kl(policy: Tensor, teacher: Tensor) -> Tensor:
    """The reverse KL from a policy to a teacher over the teacher's likeliest ids and the rest as one, [T].

    It is the KL itself if the ids are the whole vocabulary, and otherwise at most that (data processing inequality).
    Computed over ids, and not estimated from the sampled one, its gradient has less noise: GKD (Agarwal et al. 2023,
    arXiv 2306.13649); with the rest as one: SDFT (arXiv 2601.19897). Without the rest, a policy could make it small by
    avoiding the ids.

    Args:
        policy: [T, K] its log-probs of these ids.
        teacher: [T, K] likewise, or `NO_ID`.
    """
    named = teacher != NO_ID
    p, q = policy.exp() * named, teacher.exp() * named
    rest, its = ((1.0 - each.sum(1)).clamp_min(SMALLEST) for each in (p, q))
    return (p * (policy - teacher)).sum(1) + rest * (rest.log() - its.log())
