"""One training step's update: a few optimizer steps on one step's trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from rlfactory_core.engines.local.model.pack import Packed, pack
from rlfactory_core.engines.local.model.policy import Policy, token_logprobs
from rlfactory_core.engines.local.training.critic import Critic
from rlfactory_core.engines.local.training.loss import LossOptions, policy_loss
from rlfactory_core.engines.local.training.optim import Optimizer
from rlfactory_core.engines.local.training.workers import Workers
from rlfactory_core.types import TrainBatch

MEANS = ("loss", "clip_fraction", "kl", "mismatch_kl", "importance_weight", "weight_square", "entropy")


@dataclass(slots=True)
class Learner:
    """Computes gradients and updates the weights."""

    policy: Policy
    optimizer: Optimizer
    workers: Workers
    options: LossOptions
    reference: Policy | None = None  # the start model, frozen, for the KL term
    critic: Critic | None = None  # for the advantage gae

    def pack(self, batch: TrainBatch) -> list[Packed]:
        ragged = self.policy.kind == "ragged"
        return [pack(sequences, self.policy.device, share_prefix=ragged) for sequences in batch.microbatches]

    @torch.no_grad()
    def old_logprobs(self, packed: Packed) -> Tensor:
        """Under the weights as they are now, [T]."""
        return token_logprobs(self.policy.target_logits(packed), packed.target_ids, self.options.temperature)[0]

    def step(self, microbatches: Sequence[Packed], old: Sequence[Tensor | None]) -> tuple[list[float], float, bool]:
        """One optimizer step; all processes call it together, even one without a micro-batch.

        Returns:
            Sums of `MEANS` and the token count over all processes, the gradient norm, and whether the step was taken.
        """
        tokens = self.workers.sum([float(sum(len(packed.targets) for packed in microbatches))])[0]
        if not tokens:
            return [0.0] * (len(MEANS) + 1), 0.0, True
        sums = torch.zeros(len(MEANS))
        self.policy.model.train()
        for packed, before in zip(microbatches, old, strict=True):
            sums += self._backward(packed, before, tokens)
        self.policy.model.eval()  # sampling must not see the adapters' dropout
        self.workers.reduce_gradients(self.optimizer.parameters)
        norm, taken = self.optimizer.step()
        return [*self.workers.sum(sums.tolist()), tokens], norm, taken

    def _backward(self, packed: Packed, before: Tensor | None, tokens: float) -> Tensor:
        logprobs, entropy = token_logprobs(
            self.policy.target_logits(packed), packed.target_ids, self.options.temperature
        )
        reference = None
        if self.reference is not None:
            with torch.no_grad():
                logits = self.reference.target_logits(packed)
            reference = token_logprobs(logits, packed.target_ids, self.options.temperature)[0]
        sums = policy_loss(
            logprobs,
            packed.logprobs,
            packed.advantages,
            self.options,
            sequence=packed.sequence,
            old=before,
            reference=reference,
        )
        (sums.loss / tokens).backward()
        parts = [*(getattr(sums, field.name) for field in fields(sums)), entropy.sum()]  # in the order of `MEANS`
        return torch.stack([part.detach().float().cpu() for part in parts])


def summarise(steps: Sequence[tuple[list[float], float, bool]]) -> dict[str, float]:
    """The metrics of a training step's update from the results of `Learner.step`.

    Returns:
        `MEANS`, over all trained tokens of all processes; the ``effective_sample_size`` of the importance weights w as
        a share of the tokens, mean(w)² / mean(w²) (Kish 1965); the mean ``grad_norm`` of the optimizer steps; the
        number of steps ``skipped`` for a NaN or exploding gradient; and ``trained_tokens``.
    """
    *totals, tokens = [sum(column) for column in zip(*(sums for sums, _, _ in steps), strict=True)]
    means = {name: total / tokens if tokens else 0.0 for name, total in zip(MEANS, totals, strict=True)}
    square = means.pop("weight_square")
    norms = [norm for sums, norm, _ in steps if sums[-1]]
    return {
        **means,
        "effective_sample_size": means["importance_weight"] ** 2 / square if square else 0.0,
        "grad_norm": sum(norms) / len(norms) if norms else 0.0,
        "skipped": float(sum(not taken for _, _, taken in steps)),
        "trained_tokens": tokens,
    }
