"""AdamW, or Muon for the hidden matrices and AdamW for the rest, with a schedule and fp32 master weights for bf16."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.autograd.graph import increment_version

from rlfactory_core.engines.local.learning.muon import Muon
from rlfactory_core.engines.local.model.four_bits import bitsandbytes
from rlfactory_core.errors import ConfigError

_BETAS = (0.9, 0.95)
_FUSED_FROM = 10**7  # weights on a CPU, of which the fused step takes a tenth of the time


@dataclass(frozen=True, slots=True)
class OptimizerOptions:
    lr: float
    muon_lr: float = 0.0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    explode_norm: float = 1e4
    warmup_steps: int = 0
    total_steps: int = 0  # for the decaying schedules
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    bits: Literal[8, 32] = 32  # of AdamW's moments


def schedule_factor(step: int, options: OptimizerOptions) -> float:
    """The factor of the learning rates at optimizer step ``step`` (from 0)."""
    if step < options.warmup_steps:
        return (step + 1) / options.warmup_steps
    if options.schedule == "constant" or options.total_steps <= options.warmup_steps:
        return 1.0
    done = min(1.0, (step - options.warmup_steps) / (options.total_steps - options.warmup_steps))
    return 1.0 - done if options.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))


class Optimizer:
    """Updates a model's trainable parameters from their gradients.

    Muon takes matrices of hidden layers, AdamW embeddings, the head, norms and biases. bf16 parameters are updated
    through fp32 copies: at usual learning rates a bf16 weight would not move.
    """

    def __init__(self, model: nn.Module, options: OptimizerOptions) -> None:
        self.options = options
        self.steps = 0
        live = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.parameters = list(live.values())
        self._masters = {  # (bf16 parameter, fp32 copy) by name
            name: (p, nn.Parameter(p.detach().float())) for name, p in live.items() if p.dtype != torch.float32
        }
        outer = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
        head = getattr(model, "get_output_embeddings", lambda: None)()
        outer |= {id(head.weight)} if head is not None else set()
        hidden: list[nn.Parameter] = []
        rest: list[nn.Parameter] = []
        for name, p in live.items():
            inner = options.muon_lr > 0 and p.ndim == 2 and id(p) not in outer
            (hidden if inner else rest).append(self._masters.get(name, (p, p))[1])
        self._optimizers: list[tuple[torch.optim.Optimizer, float]] = []  # with their learning rates
        if rest:
            self._optimizers.append((_adamw(rest, options), options.lr))
        if hidden:
            self._optimizers.append((Muon(hidden, options.muon_lr, options.weight_decay), options.muon_lr))

    @property
    def lr(self) -> float:
        """AdamW's current learning rate."""
        return self.options.lr * schedule_factor(self.steps, self.options)

    def step(self, scale: float | None = None) -> tuple[float, bool]:
        """Clip and apply the gradients, then clear them.

        Args:
            scale: replaces the schedule's factor.

        Returns:
            The gradient norm before clipping, and whether the step was taken: it is not if the norm is infinite, NaN or
            above ``explode_norm``.
        """
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.options.max_grad_norm))
        taken = math.isfinite(norm) and norm <= self.options.explode_norm
        if taken:
            self._apply(schedule_factor(self.steps, self.options) if scale is None else scale)
        self.steps += 1
        for p in self.parameters:
            p.grad = None
        return norm, taken

    def _apply(self, factor: float) -> None:
        for live, master in self._masters.values():  # each in turn: both kinds at once would not fit
            master.grad, live.grad = None if live.grad is None else live.grad.float(), None
        for optimizer, lr in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * factor
            optimizer.step()
            # Else fused and 8-bit steps leave the version as it was, from which rounded copies know that they are old.
            increment_version([p for group in optimizer.param_groups for p in group["params"]])
        for _, master in self._masters.values():
            master.grad = None
        self._publish()

    @torch.no_grad()
    def _publish(self) -> None:
        """Round the copies to the parameters."""
        for live, master in self._masters.values():
            live.copy_(master)

    def state_dict(self) -> dict[str, Any]:
        masters = {name: master.detach() for name, (_, master) in self._masters.items()}
        return {
            "steps": self.steps,
            "optimizers": [each.state_dict() for each, _ in self._optimizers],
            "master": masters,
            "bits": self.options.bits,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        theirs = _layout(state.get("bits", 32), state["optimizers"], state["master"])
        if theirs != (ours := _layout(self.options.bits, self._optimizers, self._masters)):
            raise ConfigError(
                f"The checkpoint's optimizer has {theirs}, and this run's has {ours}. Leave train.optimizer_bits, "
                "dtype and device as they were, and train.muon_lr above 0 or at 0."
            )
        self.steps = state["steps"]
        for (optimizer, _), saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        for name, (_, master) in self._masters.items():
            master.data.copy_(state["master"][name])
        self._publish()


def _layout(bits: int, optimizers: Sequence[Any], copies: Mapping[str, Any]) -> str:
    muon = ", and Muon" if len(optimizers) > 1 else ""
    return f"{bits} bits, copies in float32 of {len(copies)} parameters{muon}"


def _adamw(parameters: Sequence[nn.Parameter], options: OptimizerOptions) -> torch.optim.Optimizer:
    """Raises as `adamw_of_8_bits`."""
    keys: dict[str, Any] = {"lr": options.lr, "weight_decay": options.weight_decay, "betas": _BETAS}
    if options.bits == 32:
        # The other implementations need as much memory again for their terms.
        fused = all(p.is_cuda for p in parameters) or sum(p.numel() for p in parameters) >= _FUSED_FROM
        return torch.optim.AdamW(parameters, fused=fused, **keys)
    made: torch.optim.Optimizer = adamw_of_8_bits()(parameters, **keys)
    return made


def adamw_of_8_bits() -> Any:
    """bitsandbytes' class, moments in blocks (Dettmers et al. 2022, arXiv 2110.02861); raises as `bitsandbytes`."""
    return bitsandbytes("optim", "train.optimizer_bits=8").AdamW8bit
