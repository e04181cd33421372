"""Muon, in float32 on the CPU.

`torch.optim.Muon` orthogonalises in bfloat16 everywhere. Processors that do not multiply it, such as all without
AVX-512, emulate it: a step of a model of 0.3 M parameters then took longer than its forward and backward passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_A, _B, _C = 3.4445, -4.7750, 2.0315  # of the quintic iteration
_ITERATIONS = 5
_EPS = 1e-7


class Muon(torch.optim.Optimizer):
    """Momentum whose updates are orthogonalised (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon).

    Its state and its arithmetic are those of `torch.optim.Muon`, but for the precision on the CPU. Matrices of the same
    shape are orthogonalised together.

    Args:
        parameters: matrices.
    """

    def __init__(
        self, parameters: list[nn.Parameter], lr: float, weight_decay: float = 0.0, momentum: float = 0.95
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            alike: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike.setdefault(parameter.shape, []).append(parameter)
            for (rows, columns), parameters in alike.items():
                updates = orthogonal(torch.stack([self._momentum(each, group["momentum"]) for each in parameters]))
                scale = -group["lr"] * max(1.0, rows / columns) ** 0.5
                for parameter, update in zip(parameters, updates, strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=scale)

    def _momentum(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        """Nesterov's update."""
        assert parameter.grad is not None
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        state["momentum_buffer"].lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(state["momentum_buffer"], momentum)


def orthogonal(matrices: Tensor) -> Tensor:
    """[n, rows, columns] -> the same with singular values of about 0.7 to 1.2, by five Newton-Schulz iterations."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    if x.is_cuda:
        x = x.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=_EPS)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
    return (x.mT if tall else x).to(matrices.dtype)
