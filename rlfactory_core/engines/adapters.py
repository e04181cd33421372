"""LoRA adapters beside a checkpoint's merged weights, in the format of PEFT: any program with peft can load them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory_core.algo.settings import LoraConfig
from rlfactory_core.engines.exports import absolute

FOLDER = "adapter"  # in a checkpoint
PREFIX = "base_model.model."


def write_adapter(checkpoint: Path, lora: LoraConfig, weights: Mapping[str, Any], base: str) -> None:
    """Write ``adapter/adapter_model.safetensors`` and ``adapter/adapter_config.json``.

    Args:
        weights: tensors by the names of a plain model with ``.lora_A.weight`` or ``.lora_B.weight`` behind the layer's.
        base: the model to which the adapters belong, for ``base_model_name_or_path``.
    """
    from safetensors.torch import save_file

    folder = checkpoint / FOLDER
    folder.mkdir(exist_ok=True)
    tensors = {f"{PREFIX}{name}": tensor.contiguous() for name, tensor in weights.items()}
    save_file(tensors, str(folder / "adapter_model.safetensors"), {"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": absolute(base),
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "bias": "none",
        "target_modules": sorted({name.rsplit(".", 3)[-3] for name in weights}),  # such as ``q_proj``
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
