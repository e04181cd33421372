"""The estimate of the memory that a run needs on this engine."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from rlfactory_core.config import RunConfig
from rlfactory_core.engines.local.model.loading import choose_device, choose_dtype
from rlfactory_core.engines.memory import MemoryPart, MemoryPhase, ModelSize, activations, keys_and_values

_LIBRARIES = {"cpu": 2**29, "cuda": 2**30}  # bytes that torch, transformers and CUDA themselves take
_CAPACITY = 256  # tokens of a slot at first, which are doubled as often as needed


def memory(config: RunConfig, size: ModelSize) -> Sequence[MemoryPhase]:
    """One process, in which all is held at once: the cache of sampling stays while the update is made."""
    device = choose_device(config.device)
    width = choose_dtype(config.dtype, device).itemsize
    parts = [
        MemoryPart("weights", size.parameters * width, f"{size.parameters:,} parameters x {width} bytes"),
        MemoryPart("gradients", size.trained * width, f"{size.trained:,} trained parameters x {width} bytes"),
        MemoryPart("optimizer", size.trained * _state(width), f"trained parameters x {_state(width)} bytes (AdamW)"),
    ]
    if config.train.kl > 0 and config.train.lora is None:
        parts.append(MemoryPart("start model", size.parameters * width, "the weights again, for train.kl"))
    parts += activations(size.shape, config, width)
    capacity = max(_CAPACITY, 1 << (config.rollout.max_tokens - 1).bit_length())
    parts.append(keys_and_values(size.shape, config.rollout.slots, capacity, width))
    parts.append(MemoryPart("libraries", _LIBRARIES[device.type], "a constant"))
    return [MemoryPhase("sampling and training", parts, _limit(device))]


def _state(width: int) -> int:
    """Two moments in fp32; for bf16 weights also a copy in fp32, and its gradient."""
    return 8 if width == 4 else 16


def _limit(device: torch.device) -> int:
    """The device's whole memory."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
