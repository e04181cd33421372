"""A frozen base in 4 bits for adapters, as in QLoRA (Dettmers et al. 2023, arXiv 2305.14314), through bitsandbytes.

Each block of 64 weights has one scale in float32 and 16 levels (nf4): the numbers that transformers makes with
``BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")``. The head, embeddings and norms stay as they are.

On some CPUs bitsandbytes' `Linear4bit` rounds more without gradients than with them. So sampling and training share one
product here: the layer's weights are de-quantised, multiplied, and forgotten until the backward pass.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from typing import Any

import torch
from packaging.version import Version
from torch import Tensor, nn
from torch.nn.functional import linear

from rlfactory_core.engines.local.model.onednn import float32_product, padded
from rlfactory_core.errors import ConfigError, MissingExtraError

BLOCK = 64  # weights with one scale
BITS = 4.5  # of a weight: its own, and its share of the scale


def bitsandbytes(module: str, key: str) -> Any:
    """A module of bitsandbytes.

    Args:
        key: with its value, what needs the module.

    Raises:
        MissingExtraError: bitsandbytes is missing, or too old to compute on the CPU.
    """
    noisy = logging.getLogger("bitsandbytes.backends.cpu.ops")  # reports a missing kernel that nothing here uses
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        if Version(version("bitsandbytes")) < Version("0.50"):
            raise ImportError
        return import_module(f"bitsandbytes.{module}")
    except ImportError as error:
        raise MissingExtraError(
            f"{key} needs bitsandbytes 0.50 or newer: python -m pip install 'rlfactory-core[bits]'"
        ) from error
    finally:
        noisy.setLevel(level)


class FourBitLinear(nn.Linear):
    """A linear layer whose weights are constant and in 4 bits.

    Args:
        layer: whose weights are rounded; its bias is taken.
        device: of the new layer.
    """

    packed: Tensor  # uint8, two weights each
    scales: Tensor  # float32, one for each block

    def __init__(self, layer: nn.Linear, device: torch.device) -> None:
        nn.Module.__init__(self)  # nn.Linear's own would make a weight
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.dtype = layer.weight.dtype
        functions = bitsandbytes("functional", "train.lora.base_bits=4")
        weight = layer.weight.detach().to(device)
        packed, state = functions.quantize_4bit(weight, blocksize=BLOCK, quant_type="nf4")
        self.register_buffer("packed", packed)
        self.register_buffer("scales", state.absmax)
        self.bias = layer.bias

    def weights(self, dtype: torch.dtype) -> Tensor:
        """[out, in], de-quantised."""
        shape = self.out_features, self.in_features
        weights: Tensor = torch.ops.bitsandbytes.dequantize_4bit(self.packed, self.scales, BLOCK, "nf4", shape, dtype)
        return weights

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """A copy in the type of the original weights."""
        return self.weights(self.dtype)

    def plain(self) -> nn.Linear:
        """A layer with the same numbers as weights."""
        layer = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        layer.weight, layer.bias = nn.Parameter(self.weight, requires_grad=False), self.bias
        return layer

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name of nn.Linear's argument
        output: Tensor = _Product.apply(input, self)  # type: ignore[no-untyped-call]
        return output if self.bias is None else output + self.bias.to(output.dtype)


class _Product(torch.autograd.Function):
    """A product with a layer's weights, which are not kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: FourBitLinear) -> Tensor:
        rounded = x.is_cpu and torch.is_autocast_enabled("cpu")
        ctx.layer, ctx.dtype = layer, torch.bfloat16 if rounded else x.dtype
        return _product(x.to(ctx.dtype), layer.weights(ctx.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        return _product(gradient.to(ctx.dtype), ctx.layer.weights(ctx.dtype).t()), None


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """x [..., in] and weight [out, in] -> [..., out]."""
    if not x.is_cpu:
        return linear(x, weight)
    if x.dtype == torch.float32:
        return float32_product(x, weight)
    return linear(padded(x), weight)[: x[..., 0].numel()].view(*x.shape[:-1], len(weight))


def linear_layers(model: Any) -> Iterator[tuple[str, nn.Linear]]:
    """A model's linear layers by their paths, all but the head."""
    head = model.get_output_embeddings()
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear) and module is not head:
            yield path, module


def quantize(model: Any, device: torch.device) -> None:
    """Round the weights of the linear layers, each on the device where it will be.

    Raises:
        MissingExtraError: as `bitsandbytes`.
        ConfigError: the model has no linear layers, or one whose width bitsandbytes does not compute with.
    """
    layers = list(linear_layers(model))
    # On CPUs it takes wrong scales for some other widths, such as 48, and fails with others.
    if odd := next((f"{path} has {layer.in_features}" for path, layer in layers if layer.in_features % BLOCK), None):
        raise ConfigError(
            f"train.lora.base_bits=4 needs layers with a multiple of {BLOCK} inputs, and {odd}. Leave the key out."
        )
    if not layers:
        raise ConfigError(
            "train.lora.base_bits=4: this model has no linear layers of torch, and nothing would be kept in 4 bits. "
            "Leave the key out."
        )
    for path, layer in layers:
        model.set_submodule(path, FourBitLinear(layer, device))
