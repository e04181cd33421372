"""The estimate of the memory that a run needs on each GPU of this engine.

FSDP divides weights, gradients and optimizer states, all in fp32, among the GPUs that train (arXiv 2304.11277); the
computation is in bf16. vLLM gets a fixed share of each GPU, and frees it while the model is trained on the same GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlfactory_core.engines import EngineSettings, MemoryPart, MemoryPhase, ModelSize, activations, keys_and_values
from rlfactory_verl.config import VerlConfig

_LIBRARIES = 2**31  # bytes that CUDA, NCCL, torch and vLLM's graphs themselves take


def memory(config: EngineSettings, size: ModelSize, limit: int | None) -> Sequence[MemoryPhase]:
    """Training and sampling on the GPU that has to do most."""
    verl = VerlConfig.of(config)
    here = verl.gpus or max(1, torch.cuda.device_count())
    separate = verl.mode == "separate_async"
    sampling = (verl.rollout_gpus or here // 2) if separate else 0
    share = max(1, (here - sampling) * verl.nodes)
    held = _held(config, size, share)
    libraries = MemoryPart("libraries", _LIBRARIES, "a constant")
    width = 4 if config.dtype == "float32" else 2
    needed = (
        MemoryPart("weights in vLLM", size.parameters * width // verl.tensor_parallel, f"parameters x {width} bytes"),
        keys_and_values(size.shape, 1, config.rollout.max_tokens, width),
    )
    given = None if limit is None else int(verl.memory_share * limit)
    phases = [
        MemoryPhase("training", [*held, *activations(size.shape, config, width), libraries], limit),
        MemoryPhase("vLLM, for one trajectory at least", needed, given),
    ]
    if given is not None and not separate:
        beside = () if verl.offload else held
        served = MemoryPart("vLLM", given, f"verl.memory_share={verl.memory_share:g} of the GPU")
        phases.append(MemoryPhase("sampling", [served, *beside, libraries], limit))
    return phases


def _held(config: EngineSettings, size: ModelSize, gpus: int) -> Sequence[MemoryPart]:
    """What stays on a GPU during the whole run, unless it is offloaded while sampling."""
    parts = [
        MemoryPart("weights", 4 * size.parameters // gpus, f"{size.parameters:,} parameters x 4 bytes / {gpus} GPUs"),
        MemoryPart("gradients", 4 * size.trained // gpus, f"trained parameters x 4 bytes / {gpus} GPUs"),
        MemoryPart("optimizer", 8 * size.trained // gpus, f"trained parameters x 8 bytes (AdamW) / {gpus} GPUs"),
    ]
    if config.train.kl > 0 and config.train.lora is None:
        parts.append(MemoryPart("start model", 4 * size.parameters // gpus, "the weights again, for train.kl"))
    if config.train.advantage == "gae":
        parts.append(MemoryPart("critic", 16 * size.parameters // gpus, f"parameters x 16 bytes / {gpus} GPUs"))
    return parts
