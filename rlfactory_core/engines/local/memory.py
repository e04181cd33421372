"""The size of a model from its ``config.json`` alone, and the memory that a run with it needs on this engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from rlfactory_core.algo.advantages import GAE
from rlfactory_core.algo.settings import LoraConfig, teachers_of
from rlfactory_core.engines.local.model.four_bits import BITS, linear_layers
from rlfactory_core.engines.local.model.loading import (
    choose_device,
    choose_dtype,
    chooses_bfloat16_products,
    make_empty,
    quiet_transformers,
)
from rlfactory_core.engines.local.model.logprobs import AT_ONCE
from rlfactory_core.engines.memory import MemoryPart, MemoryPhase, ModelShape, ModelSize, activations, keys_and_values
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.utils.memory import free_memory

_START = "start model"
_USABLE = 0.9  # of the free memory, which other programs use as well
_LIBRARIES = {"cpu": 3 * 2**28, "cuda": 2**30}  # bytes that torch, transformers, compiled kernels and CUDA take
_CAPACITY = 256  # tokens of a slot at first, which are doubled as often as needed


def usable_memory(config: EngineSettings) -> int | None:
    """Bytes that the processes of a run may take together on their device; None: such a GPU is not here."""
    on_gpu = config.device.startswith("cuda") or config.engine != "local"
    if on_gpu and not torch.cuda.is_available():
        return None
    device = choose_device(config.device)
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(_USABLE * free_memory())


def memory(
    config: EngineSettings, size: ModelSize, limit: int | None, *, training: bool = True
) -> Sequence[MemoryPhase]:
    """One process. The cache of sampling stays while the update is made. The device need not be there.

    Of bf16 weights the optimizer has a copy in fp32. The copy's gradients take the place of the weights' own when the
    backward pass is over. fp32 weights that are multiplied in bf16 have a rounded copy; frozen ones are it.
    """
    elsewhere = config.device.startswith("cuda") and not torch.cuda.is_available()
    device = torch.device("cuda") if elsewhere else choose_device(config.device)
    width = choose_dtype(config.dtype, device).itemsize
    half = width < 4
    products = 2 if not elsewhere and chooses_bfloat16_products(config, size.parameters) else width
    capacity = max(_CAPACITY, 1 << (config.rollout.max_tokens - 1).bit_length())
    cached = keys_and_values(size.shape, config.rollout.slots, capacity, products)
    libraries = MemoryPart("libraries", _LIBRARIES[device.type], "a constant")
    held = [*_weights(config, size, width, products)]
    if not training:
        sampling = [*(part for part in held if part.what != _START), cached, libraries]
        return [MemoryPhase("sampling", sampling, limit)]
    state = 2 * config.train.optimizer_bits // 8 + (4 if half else 0)  # two moments, and the copy
    held.append(MemoryPart("optimizer", size.trained * state, f"trained parameters x {state} bytes (AdamW)"))
    if config.train.advantage == GAE:  # both are never updated at once, so that there is one part of gradients
        copied = sum(part.size for part in held if part.what != _START)
        held.append(MemoryPart("critic", copied, "weights and optimizer again, for gae"))
    held += [cached, *_teachers(config, device, width), libraries]

    def gradients(each: int) -> MemoryPart:
        return MemoryPart("gradients", size.trained * each, f"{size.trained:,} trained parameters x {each} bytes")

    logits = 3 * width if half else 2 * width  # with what they are multiplied from
    update = [*held, gradients(width), *activations(size.shape, config, products, AT_ONCE, logits)]
    phases = [MemoryPhase("sampling and training", update, limit)]
    if config.train.lora is not None and config.train.lora.base_bits and device.type == "cpu":
        whole = MemoryPart("weights", size.parameters * width, f"{size.parameters:,} parameters x {width} bytes")
        phases.append(MemoryPhase("loading", [whole, libraries], limit))
    if half:
        phases.append(MemoryPhase("step of the optimizer", [*held, gradients(4)], limit))
    return phases


def _weights(config: EngineSettings, size: ModelSize, width: int, products: int) -> Iterator[MemoryPart]:
    """Those that are trained or that adapters are trained beside, and the start model's."""
    frozen = _frozen("weights", size, width, products)
    if config.train.lora is not None and config.train.lora.base_bits:
        other = size.parameters - size.linear
        text = f"{size.linear:,} of linear layers x {BITS} bits, other {other:,} x {width} bytes"
        yield MemoryPart("weights", int(size.linear * BITS / 8) + other * width, text)
        layer = size.shape.hidden * size.shape.inner
        yield MemoryPart("de-quantised layer", layer * products, f"{layer:,} parameters x {products} bytes, at a time")
        return
    if config.train.lora is not None:
        yield frozen
        return
    yield MemoryPart("weights", size.parameters * width, f"{size.parameters:,} parameters x {width} bytes")
    if products < width:
        rounded = size.parameters - _embedded(size)
        yield MemoryPart("rounded weights", rounded * products, f"{rounded:,} of layers x {products} bytes")
    if config.train.kl > 0:
        yield MemoryPart(_START, frozen.size, "the weights again, for train.kl")


def _frozen(what: str, size: ModelSize, width: int, products: int) -> MemoryPart:
    """Weights that are not trained."""
    if products == width:
        return MemoryPart(what, size.parameters * width, f"{size.parameters:,} parameters x {width} bytes")
    embedded = _embedded(size)
    layers = size.parameters - embedded
    text = f"{embedded:,} embeddings x {width} bytes, other {layers:,} x {products} bytes"
    return MemoryPart(what, embedded * width + layers * products, text)


def _embedded(size: ModelSize) -> int:
    """The parameters that are not multiplied in bf16."""
    return min(size.parameters, size.shape.vocabulary * size.shape.hidden)


def _teachers(config: EngineSettings, device: torch.device, width: int) -> Iterator[MemoryPart]:
    """The weights of those in this process, and on this device."""
    train = config.train
    if train.teacher_device not in ("", config.device, str(device)):
        return
    for name in dict.fromkeys(teachers_of(train.teacher).values()):
        if "://" not in name:
            size = model_size(name)
            rounded = device.type == "cpu" and chooses_bfloat16_products(config, size.parameters)
            yield _frozen("teacher", size, width, 2 if rounded else width)


@quiet_transformers()
def model_size(model: str, lora: LoraConfig | None = None) -> ModelSize:
    """
    Args:
        model: a folder or a hub id.
        lora: the run's adapters, if it trains some.

    Raises:
        ModelError: its configuration cannot be found or read.
    """
    empty = make_empty(model)
    config = empty.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None) or 1  # a state space has none
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    parameters = sum(each.numel() for each in empty.parameters())
    shape = ModelShape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        inner=_inner(config),
        queries=heads * width,
        keys=(getattr(config, "num_key_value_heads", None) or heads) * width,
        vocabulary=config.vocab_size,
    )
    linear = sum(layer.weight.numel() for _, layer in linear_layers(empty))
    return ModelSize(parameters, parameters if lora is None else _adapters(empty, lora), linear, shape)


def _inner(config: Any) -> int:
    """The width of the feed-forward part; of a mixture of experts, those that a token uses."""
    used = getattr(config, "num_experts_per_tok", None)
    expert = getattr(config, "moe_intermediate_size", None)
    if used and expert:
        return int(used * expert)
    return int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size) * (used or 1)


def _adapters(model: Any, lora: LoraConfig) -> int:
    """Two matrices of ``rank`` columns beside each layer that is named; all linear ones are all but the head."""
    names = {name.strip() for name in lora.targets.split(",")}
    head = model.get_output_embeddings()
    return sum(
        lora.rank * (layer.in_features + layer.out_features)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
        and (layer is not head if names == {"all-linear"} else name.rpartition(".")[2] in names)
    )
