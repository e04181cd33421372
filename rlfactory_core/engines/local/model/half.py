"""Products in bfloat16 on processors that multiply it several times as fast as float32.

The weights stay float32, and so do gradients, the sums between layers, norms and logits: only the factors of linear
layers and of attention are rounded, as under `torch.autocast`. Sampling and training go through the same code, so that
their log-probs differ little (a mean KL divergence of 6e-4 nats for SmolLM2-135M, where a model of bfloat16 weights and
sums has 2e-3).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from rlfactory_core.engines.local.model.onednn import float32_product, padded

FEWEST = 20_000_000  # parameters; smaller models would not be faster
FLAGS = ("avx512_bf16", "amx_bf16")  # in /proc/cpuinfo
_MARK, _COPY = "rlfactory_bfloat16", "rlfactory_bfloat16_weight"
_ROWS = 512  # of a head's gradient that are held in bfloat16 at a time


@cache
def bfloat16_flag() -> str | None:
    """What lets this processor multiply bfloat16 fast, by its name in ``/proc/cpuinfo``; None: it does not."""
    described = Path("/proc/cpuinfo")
    words = described.read_text(encoding="utf-8", errors="replace").split() if described.exists() else []
    return next((flag for flag in FLAGS if flag in words), None)


def computes_in_bfloat16(model: nn.Module) -> bool:
    return bool(getattr(model, _MARK, False))


def compute_in_bfloat16(model: Any) -> None:
    """Let a float32 model on the CPU multiply in bfloat16, as its copies then do, too; frozen layers become bfloat16.

    The head multiplies in float32, and only its gradients in bfloat16: rounded logits would make two thirds of the
    difference between sampling and training.
    """
    setattr(model, _MARK, True)
    head = model.get_output_embeddings()
    for module in model.modules():
        if type(module) is not nn.Linear:
            continue
        module.forward = MethodType(_head if module is head else _layer, module)  # type: ignore[method-assign]
        if module is not head and not module.weight.requires_grad:  # nobody needs what is rounded off
            module.__dict__.pop(_COPY, None)
            module.weight.data = module.weight.data.to(torch.bfloat16)


def precision(model: nn.Module) -> AbstractContextManager[Any]:
    """The context of a forward pass."""
    if not computes_in_bfloat16(model):
        return nullcontext()
    return torch.autocast("cpu", torch.bfloat16, cache_enabled=False)


def _layer(self: nn.Linear, input: Tensor) -> Tensor:  # noqa: A002 - the name of nn.Linear's argument
    output: Tensor = _Layer.apply(input, self.weight, _rounded(self))  # type: ignore[no-untyped-call]
    return output if self.bias is None else output + self.bias.to(output.dtype)


def _head(self: nn.Linear, input: Tensor) -> Tensor:  # noqa: A002
    output: Tensor = _Head.apply(input.float(), self.weight)  # type: ignore[no-untyped-call]
    return output if self.bias is None else output + self.bias


def forget_rounded(part: Any) -> None:
    """Round the weights of a copied part anew; what is no module has no rounded ones."""
    for module in part.modules() if isinstance(part, nn.Module) else ():
        module.__dict__.pop(_COPY, None)


def _rounded(layer: nn.Linear) -> Tensor:
    """The weight in bfloat16, which is made anew when the weight has changed."""
    weight = layer.weight.detach()
    if weight.dtype == torch.bfloat16:
        return weight
    kept: tuple[int, Tensor] | None = layer.__dict__.get(_COPY)
    if kept is None or kept[0] != layer.weight._version:
        with torch.inference_mode(mode=False):  # or it could not be used in training
            kept = layer.weight._version, weight.bfloat16() if kept is None else kept[1].copy_(weight)
        layer.__dict__[_COPY] = kept
    return kept[1]


class _Layer(torch.autograd.Function):
    """A product of rounded factors, in bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, rounded: Tensor) -> Tensor:
        rows = padded(x.to(torch.bfloat16))
        ctx.save_for_backward(rows, rounded)
        return linear(rows, rounded)[: x[..., 0].numel()].view(*x.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, rounded = ctx.saved_tensors
        (seen,) = gradients
        gradient = padded(seen.to(torch.bfloat16))
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = (gradient @ rounded)[: seen[..., 0].numel()].view(*seen.shape[:-1], rounded.shape[1])
        if ctx.needs_input_grad[1]:
            of_weight = gradient.t() @ rows
        return of_x, of_weight, None


class _Head(torch.autograd.Function):
    """A product in float32, with gradients from rounded factors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        with torch.autocast("cpu", enabled=False):
            return float32_product(x, weight.float())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows, gradient = (each.reshape(-1, each.shape[-1]).split(_ROWS) for each in (x, gradients[0]))
        rounded, of_x, of_weight = weight.to(torch.bfloat16), [], None
        for here, part in zip(rows, gradient, strict=True):
            seen = padded(part.to(torch.bfloat16))
            if ctx.needs_input_grad[0]:
                of_x.append((seen @ rounded)[: len(here)])
            if ctx.needs_input_grad[1]:
                product = seen.t() @ padded(here.to(torch.bfloat16))
                of_weight = product.float() if of_weight is None else of_weight.add_(product)
        return torch.cat(of_x).view_as(x).float() if of_x else None, of_weight
