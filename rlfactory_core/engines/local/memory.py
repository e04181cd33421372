"""The estimate of the memory that a run needs on this engine."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from rlfactory_core.engines.local.model.loading import choose_device, choose_dtype
from rlfactory_core.engines.local.model.policy import AT_ONCE
from rlfactory_core.engines.memory import MemoryPart, MemoryPhase, ModelSize, activations, keys_and_values
from rlfactory_core.engines.settings import EngineSettings

_LIBRARIES = {"cpu": 2**29, "cuda": 2**30}  # bytes that torch, transformers and CUDA themselves take
_CAPACITY = 256  # tokens of a slot at first, which are doubled as often as needed


def memory(config: EngineSettings, size: ModelSize, limit: int | None = None) -> Sequence[MemoryPhase]:
    """One process. The cache of sampling stays while the update is made. The device need not be there.

    Of bf16 weights the optimizer has a copy in fp32. The copy's gradients take the place of the weights' own when the
    backward pass is over.
    """
    elsewhere = config.device.startswith("cuda") and not torch.cuda.is_available()
    device = torch.device("cuda") if elsewhere else choose_device(config.device)
    limit = limit if limit is not None or elsewhere else _limit(device)
    width = choose_dtype(config.dtype, device).itemsize
    half = width < 4
    held = [MemoryPart("weights", size.parameters * width, f"{size.parameters:,} parameters x {width} bytes")]
    if config.train.kl > 0 and config.train.lora is None:
        held.append(MemoryPart("start model", size.parameters * width, "the weights again, for train.kl"))
    state = 12 if half else 8  # two moments in fp32, and the copy
    held.append(MemoryPart("optimizer", size.trained * state, f"trained parameters x {state} bytes (AdamW)"))
    capacity = max(_CAPACITY, 1 << (config.rollout.max_tokens - 1).bit_length())
    held.append(keys_and_values(size.shape, config.rollout.slots, capacity, width))
    held.append(MemoryPart("libraries", _LIBRARIES[device.type], "a constant"))

    def gradients(each: int) -> MemoryPart:
        return MemoryPart("gradients", size.trained * each, f"{size.trained:,} trained parameters x {each} bytes")

    update = [*held, gradients(width), *activations(size.shape, config, width, AT_ONCE)]
    phases = [MemoryPhase("sampling and training", update, limit)]
    if half:
        phases.append(MemoryPhase("step of the optimizer", [*held, gradients(4)], limit))
    return phases


def _limit(device: torch.device) -> int:
    """The device's whole memory."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
