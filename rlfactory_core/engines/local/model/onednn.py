"""Linear layers through oneDNN on processors where torch's own matrix product is slow.

On x86 torch multiplies fp32 matrices with MKL, which uses AVX-512 on Intel's processors only. oneDNN, which torch also
ships and uses for other types, uses it on all: 230 instead of 100 GFLOP/s a core on AMD's Zen 4 and 5. Matrix products
take nearly all of a small model's time.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

KERNELS = 64  # more than a model's layers need for one shape of training and one of sampling
SMALLEST = 2**22  # multiplications; in a smaller product the overhead outweighs the gain
TOLERANCE = 1e-4  # of sums of 64 products of standard normal numbers


def speed_up_linears(model: nn.Module) -> int:
    """Let the fp32 `nn.Linear`s of ``model`` compute through oneDNN if that is faster here; returns their number.

    The choice depends on the processor alone, so that a run and its resume round alike.
    """
    if not _pays():
        return 0
    plain = [module for module in model.modules() if type(module) is nn.Linear]
    for module in plain:
        module.forward = MethodType(_forward, module)  # type: ignore[method-assign]
    return len(plain)


def float32_product(x: Tensor, weight: Tensor) -> Tensor:
    """x [..., in] and weight [out, in], on the CPU -> [..., out]."""
    return _product(x, weight) if _pays() else linear(x, weight)


@cache
def _pays() -> bool:
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkldnn.is_available():
        return False
    described = Path("/proc/cpuinfo")
    if not described.exists() or "GenuineIntel" in described.read_text(encoding="utf-8", errors="replace"):
        return False
    return _agrees()


def _agrees() -> bool:
    """Whether the operator, which is not public, exists and gives the right values and gradients."""
    generator = torch.Generator().manual_seed(0)
    x, weight, seen = (torch.randn(shape, generator=generator) for shape in ((33, 64), (48, 64), (33, 48)))
    x.requires_grad_()
    weight.requires_grad_()
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            found, wanted = _differentiable(x, weight), linear(x, weight)
            pairs = [(found, wanted)]
            for ours, theirs in zip(*(torch.autograd.grad(y, (x, weight), seen) for y in (found, wanted)), strict=True):
                pairs.append((ours, theirs))
    except (AttributeError, RuntimeError, TypeError):
        return False
    return all(torch.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE) for ours, theirs in pairs)


def _forward(self: nn.Linear, input: Tensor) -> Tensor:  # noqa: A002 - the name of nn.Linear's argument
    weight = self.weight
    small = input.numel() * weight.shape[0] < SMALLEST
    if small or not input.is_cpu or input.dtype != torch.float32 or weight.dtype != torch.float32:
        return linear(input, weight, self.bias)
    if torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad):
        output = _differentiable(input, weight)
    else:
        output = _product(input, weight)
    return output if self.bias is None else output + self.bias


def keep_few_kernels() -> None:
    """Let oneDNN forget kernels that were not used for long; to be called before its first product.

    By default it keeps 1,024 of half a megabyte each, and sampling makes two with each new length. Both caches, its own
    and that of torch's layer above it, hold a kernel.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(KERNELS))


def padding_of(rows: int) -> int:
    """How many rows to add, so that products have few different shapes.

    For each shape oneDNN compiles a kernel, which takes half a millisecond, and keeps it, which takes up to a megabyte.
    """
    return -rows % (16 if rows <= 512 else 256)


def padded(x: Tensor) -> Tensor:
    """[..., width] -> [rows, width], rows of zeros added."""
    rows = x.reshape(-1, x.shape[-1])
    extra = padding_of(len(rows))
    return pad(rows, (0, 0, 0, extra)) if extra else rows


def _operator(x: Tensor, weight: Tensor) -> Tensor:
    """x [rows, in] and weight [out, in], of any strides -> [rows, out]."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return product


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """x [..., in] and weight [out, in] -> [..., out]."""
    product = _operator(padded(x), weight)[: x.numel() // x.shape[-1]]
    return product.view(*x.shape[:-1], weight.shape[0])


def _differentiable(x: Tensor, weight: Tensor) -> Tensor:
    product: Tensor = _Linear.apply(x, weight)  # type: ignore[no-untyped-call]
    return product


class _Linear(torch.autograd.Function):
    """`_product` and its gradients, which are products too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        of_x = _product(gradient, weight.t()) if ctx.needs_input_grad[0] else None
        of_weight = _operator(padded(gradient).t(), padded(x).t()) if ctx.needs_input_grad[1] else None
        return of_x, of_weight
