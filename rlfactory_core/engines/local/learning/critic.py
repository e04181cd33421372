"""PPO's critic: a copy of the model with one output, trained on returns, and generalised advantage estimates."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.model.pack import Packed
from rlfactory_core.engines.local.model.policy import Policy
from rlfactory_core.engines.local.workers import Workers

CLIP = 0.5  # how far a value may move from the one before the update, as in verl
EPS = 1e-8


class Critic:
    """Estimates values, and learns them.

    Args:
        policy: whose model is copied, so that the critic starts from what it knows; its output is new, from ``seed``.
        gamma, lam: see `gae`.
    """

    def __init__(
        self, policy: Policy, options: OptimizerOptions, workers: Workers, gamma: float, lam: float, seed: int
    ) -> None:
        self.policy = policy.of(value_model(policy.model, seed))
        self.optimizer = Optimizer(self.policy.model, options)
        self._workers, self._gamma, self._lam = workers, gamma, lam

    @torch.no_grad()
    def estimate(self, batches: Sequence[Sequence[Packed]]) -> list[list[Packed]]:
        """Replace rewards by advantages, which have mean 0 and deviation 1 over all tokens of all processes.

        Args:
            batches: with each turn's reward in ``advantages`` of all its tokens.
        """
        found = [[self._estimate(packed) for packed in microbatches] for microbatches in batches]
        advantages = [packed.advantages for microbatches in found for packed in microbatches]
        flat = torch.cat(advantages) if advantages else torch.zeros(0)
        total, square, count = self._workers.sum([float(flat.sum()), float((flat * flat).sum()), float(len(flat))])
        mean = total / max(count, 1.0)
        deviation = (max(square - count * mean * mean, 0.0) / max(count - 1.0, 1.0)) ** 0.5
        white = iter([(each - mean) / (deviation + EPS) for each in advantages])
        return [[replace(packed, advantages=next(white)) for packed in microbatches] for microbatches in found]

    def step(self, microbatches: Sequence[Packed]) -> float:
        """One optimizer step on the clipped squared error (PPO, arXiv 1707.06347); all processes call it together.

        Returns:
            The mean loss over the tokens of all processes.
        """
        tokens = self._workers.sum([float(sum(len(packed.place) for packed in microbatches))])[0]
        if not tokens:
            return 0.0
        loss = 0.0
        self.policy.model.train()
        for packed in microbatches:
            values, before, returns = self._values(packed), packed.values, packed.returns
            assert before is not None
            assert returns is not None
            near = before + (values - before).clamp(-CLIP, CLIP)
            errors = torch.maximum((values - returns) ** 2, (near - returns) ** 2)
            part = 0.5 * errors.sum() / tokens
            part.backward()
            loss += float(part.detach())
        self.policy.model.eval()
        self._workers.reduce_gradients(self.optimizer.parameters)
        self.optimizer.step()
        return self._workers.sum([loss])[0]

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.policy.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.policy.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def _values(self, packed: Packed) -> Tensor:
        """[T]: the value of the state before each token."""
        return self.policy.target_logits(packed)[:, 0].float()

    def _estimate(self, packed: Packed) -> Packed:
        values = self._values(packed)
        returns = gae(values, at_turn_ends(packed), packed.sequence, self._gamma, self._lam) + values
        return replace(packed, advantages=returns - values, values=values, returns=returns)


def value_model(model: Any, seed: int) -> Any:
    """A copy of a causal language model that gives one number for each token."""
    copied = copy.deepcopy(model)
    embeddings = copied.get_input_embeddings().weight
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = nn.Linear(embeddings.shape[1], 1)
        nn.init.normal_(head.weight, std=0.02)
        nn.init.zeros_(head.bias)
    copied.config.tie_word_embeddings = False
    copied.set_output_embeddings(head.to(embeddings.device, embeddings.dtype))
    return copied


def at_turn_ends(packed: Packed) -> Tensor:
    """[T]: each turn's reward on its last token, 0 elsewhere. Between two turns stands what the model was shown."""
    last = torch.ones_like(packed.place, dtype=torch.bool)
    last[:-1] = (packed.place[1:] != packed.place[:-1] + 1) | (packed.sequence[1:] != packed.sequence[:-1])
    return torch.where(last, packed.advantages, torch.zeros_like(packed.advantages))


def gae(values: Tensor, rewards: Tensor, sequence: Tensor, gamma: float = 1.0, lam: float = 1.0) -> Tensor:
    """Generalised advantage estimates, Schulman et al. 2016, arXiv 1506.02438: all tensors are [T].

    A_t = d_t + gamma lam A_{t+1} with d_t = r_t + gamma V_{t+1} - V_t. After the last token of a sequence all is 0. A
    step is a sampled token; what tools answer stands between two steps. ``lam`` is between one-step (0) and whole
    returns (1).
    """
    advantages = torch.zeros_like(values)
    following, value = 0.0, 0.0
    known, earned, of = values.tolist(), rewards.tolist(), sequence.tolist()
    for place in range(len(known) - 1, -1, -1):
        if place + 1 == len(known) or of[place + 1] != of[place]:
            following, value = 0.0, 0.0
        delta = earned[place] + gamma * value - known[place]
        following = delta + gamma * lam * following
        value = known[place]
        advantages[place] = following
    return advantages
