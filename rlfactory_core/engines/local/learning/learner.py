"""One training step's update: a few optimizer steps on one step's trajectories."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from rlfactory_core.algo.advantages import GAE
from rlfactory_core.algo.losses import LossOptions, objective, ppo
from rlfactory_core.algo.stages import STAGE_METHODS
from rlfactory_core.engines.base import EngineStart
from rlfactory_core.engines.local.learning.critic import Critic
from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.model.logprobs import token_logprobs
from rlfactory_core.engines.local.model.pack import Packed, pack, split
from rlfactory_core.engines.local.model.policy import Policy
from rlfactory_core.engines.local.workers import Compute, Workers
from rlfactory_core.types import TrainBatch, TrainSequence


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """What one optimizer step was made from, over all processes, and what became of it."""

    tokens: float = 0.0  # 0: there was nothing to train
    sums: Mapping[str, float] = field(default_factory=dict)  # of a metric over these tokens
    norm: float = 0.0  # of the gradient
    taken: bool = True  # False: the gradient was NaN or exploding


@dataclass(slots=True)
class Learner:
    """Computes gradients and updates the weights."""

    policy: Policy
    optimizer: Optimizer
    workers: Workers
    options: LossOptions
    reference: Policy | None = None  # the start model, frozen, for the KL term
    critic: Critic | None = None  # for the advantage gae
    updates: int = 1  # optimizer steps of a training step
    microbatch_tokens: int = 2**14  # of one forward and backward pass

    async def update(
        self, batches: Sequence[TrainBatch], compute: Compute, changed: Callable[[], None]
    ) -> dict[str, float]:
        """A training step's optimizer steps, as many if this process has fewer batches. Returns its metrics.

        Args:
            compute: runs them one by one, so that tokens are sampled in between.
            changed: is called with the last one.
        """
        started = time.perf_counter()
        packed = [await compute.run(partial(self.pack, batch, first=batch is batches[0])) for batch in batches]
        context = sum(each.flat_ids.numel() for part in packed for each in part)
        if self.critic is not None:
            packed = await compute.run(partial(self.critic.estimate, packed))
        critic_losses: list[float] = []

        def optimize(index: int) -> OptimizerStep:
            here = packed[index] if index < len(packed) else []
            if self.critic is not None:
                critic_losses.append(self.critic.step(here))
            step = self.step(here)
            if index == self.updates - 1:
                changed()
            return step

        steps = [await compute.run(partial(optimize, index)) for index in range(self.updates)]
        took = max(time.perf_counter() - started, 1e-9)
        return {
            **summarise(steps),
            **({"critic_loss": fmean(critic_losses)} if critic_losses else {}),
            "lr": self.optimizer.lr,
            # Those of this process, scaled to all, with the context.
            "trained_tokens_s": context * self.workers.size / took,
        }

    @torch.no_grad()
    def score(self, sequences: Sequence[TrainSequence]) -> list[list[float]]:
        """See `Engine.score`."""
        return score(self.policy, sequences, share_prefix=False)

    def pack(self, batch: TrainBatch, *, first: bool = True) -> list[Packed]:
        """The micro-batches of an optimizer step; the first one computes the old log-probs itself."""
        ragged = self.policy.kind == "ragged"
        parts = split(batch.sequences, self.microbatch_tokens, share_prefix=ragged)
        packed = [pack(sequences, self.policy.device, share_prefix=ragged) for sequences in parts]
        if first or self.options.truncate is None:
            return packed
        with torch.no_grad():
            return [replace(each, old=self._logprobs(self.policy, each)[0][:, 0]) for each in packed]

    def _logprobs(self, policy: Policy, packed: Packed) -> tuple[Tensor, Tensor]:
        """Of the targets and of the teacher's likely ids, [T, 1 + K], and the entropies, [T]."""
        ids = torch.cat([packed.target_ids[:, None], packed.likely_ids], 1)
        return token_logprobs(policy.target_logits(packed), ids, self.options.temperature)

    def step(self, microbatches: Sequence[Packed]) -> OptimizerStep:
        """One optimizer step; all processes call it together, even one without a micro-batch."""
        tokens = self.workers.sum([float(sum(len(packed.place) for packed in microbatches))])[0]
        if not tokens:
            return OptimizerStep()
        sums: dict[str, Tensor] = {}
        self.policy.model.train()
        for packed in microbatches:
            for name, part in self._backward(packed, tokens).items():
                sums[name] = sums.get(name, torch.zeros(())) + part.float().cpu()
        self.policy.model.eval()  # sampling must not see the adapters' dropout
        self.workers.reduce_gradients(self.optimizer.parameters)
        norm, taken = self.optimizer.step()
        own = {name: float(value) for name, value in sums.items()}
        return OptimizerStep(tokens, self.workers.sum_by_name(own), norm, taken)

    def _backward(self, packed: Packed, tokens: float) -> Mapping[str, Tensor]:
        """The gradient's part of a micro-batch; returns the sums of its metrics."""
        found, entropy = self._logprobs(self.policy, packed)
        logprobs, likely = found[:, 0], found[:, 1:]
        reference = None
        if self.reference is not None:
            with torch.no_grad():
                reference = self._logprobs(self.reference, packed)[0][:, 0]
        sums = objective(
            logprobs,
            packed.logprobs,
            packed.advantages,
            self.options,
            sequence=packed.sequence,
            old=packed.old,
            reference=reference,
            teacher=(likely, packed.likely_logprobs) if likely.shape[1] else None,
        )
        (sums.loss / tokens).backward()
        return {**sums.metrics, "entropy": entropy.sum()}


def score(policy: Policy, sequences: Sequence[TrainSequence], *, share_prefix: bool) -> list[list[float]]:
    """See `Engine.score`."""
    packed = pack(sequences, policy.device, share_prefix=share_prefix)
    found = token_logprobs(policy.target_logits(packed), packed.target_ids, 1.0)[0].cpu()
    number = packed.sequence.cpu()
    return [found[number == each].tolist() for each in range(len(sequences))]


def make_learner(
    policy: Policy, start: EngineStart, workers: Workers, reference: Policy | None, state: Mapping[str, Any] | None
) -> Learner:
    """The loss, the optimizer and the critic of a configuration; their state is fresh, or that of a checkpoint."""
    train = start.config.train
    options = OptimizerOptions(
        lr=train.lr,
        muon_lr=train.muon_lr,
        weight_decay=train.weight_decay,
        max_grad_norm=train.max_grad_norm,
        explode_norm=train.explode_norm,
        warmup_steps=train.warmup_steps,
        total_steps=train.steps * train.updates_per_step,
        schedule=train.schedule,
        bits=train.optimizer_bits,
    )
    optimizer = Optimizer(policy.model, options)
    truncate = train.truncate_weight if train.staleness else None
    clip, temperature = (train.clip_low, train.clip_high), start.config.rollout.temperature
    method = STAGE_METHODS[train.method]
    if method.imitates:
        sampled, temperature = method.plays and temperature == 1.0, 1.0
    else:
        sampled = True
    loss = LossOptions(*clip, train.kl, truncate, start.loss or ppo, temperature, sampled)
    critic = None
    if train.advantage == GAE:
        own = replace(options, lr=train.critic_lr, muon_lr=0.0)
        critic = Critic(policy, own, workers, train.gamma, train.lam, start.config.seed)
    if state is not None:
        optimizer.load_state_dict(state["optimizer"])
        if critic is not None and state["critic"]:
            critic.load_state_dict(state["critic"])
    return Learner(policy, optimizer, workers, loss, reference, critic, train.updates_per_step, train.microbatch_tokens)


def summarise(steps: Sequence[OptimizerStep]) -> dict[str, float]:
    """The metrics of a training step's update.

    Returns:
        ``trained_tokens``, of all processes, and the number of steps ``skipped`` for a NaN or exploding gradient. If
        there were tokens: the means of all sums over them; if the policy sampled them, the ``effective_sample_size`` of
        the importance weights w as a share of the tokens, mean(w)² / mean(w²) (Kish 1965); and the mean ``grad_norm``
        of the optimizer steps.
    """
    tokens = sum(step.tokens for step in steps)
    counts = {"trained_tokens": tokens, "skipped": float(sum(not step.taken for step in steps))}
    if not tokens:
        return counts
    trained = [step for step in steps if step.tokens]
    names = dict.fromkeys(name for step in trained for name in step.sums)
    means = {name: sum(step.sums.get(name, 0.0) for step in trained) / tokens for name in names}
    square = means.pop("weight_square", None)
    size = {} if square is None else {"effective_sample_size": means["importance_weight"] ** 2 / (square or inf)}
    return {
        **means,
        **size,
        "grad_norm": sum(step.norm for step in trained) / len(trained),
        **counts,
    }
