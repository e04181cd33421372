"""Makes verl's Hugging Face folder of a LoRA run what it should be: merged weights, and the adapters beside them.

verl 0.9.1 saves the weights under peft's names (``base_model.model.….base_layer.weight``), which ``from_pretrained``
does not know: it would start from random weights without an error.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rlfactory_core.algo import LoraConfig
from rlfactory_core.engines import PREFIX, write_adapter

INDEX = "model.safetensors.index.json"
_A, _B, _BASE = ".lora_A.default.weight", ".lora_B.default.weight", ".base_layer."


def merge_adapters(folder: Path, lora: LoraConfig, base: str) -> None:
    """Merge the adapters into the weights, file by file, under a plain model's names, and write the adapters alone.

    A folder whose weights have no adapters stays as it is.

    Args:
        base: the model from which the run started.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    files = sorted(folder.glob("*.safetensors"))
    adapters: dict[str, Any] = {}
    for file in files:
        with safe_open(str(file), "pt") as opened:
            adapters |= {name: opened.get_tensor(name) for name in opened.keys() if name.endswith((_A, _B))}  # noqa: SIM118
    if not adapters:
        return
    names: dict[str, str] = {}
    for file in files:
        merged = {}
        for name, tensor in load_file(str(file)).items():
            if name not in adapters:
                merged[plain_name(name)] = merged_weight(name, tensor, adapters, lora.alpha / lora.rank)
        temporary = file.with_suffix(".partial")
        save_file(merged, str(temporary), {"format": "pt"})
        os.replace(temporary, file)
        names |= dict.fromkeys(merged, file.name)
    if (folder / INDEX).exists():
        index = json.loads((folder / INDEX).read_text())
        (folder / INDEX).write_text(json.dumps({**index, "weight_map": names}, indent=2))
    own = {name.removeprefix(PREFIX).replace(".default.", "."): tensor for name, tensor in adapters.items()}
    write_adapter(folder, lora, own, base)


def plain_name(name: str) -> str:
    """A weight's name in the model without adapters."""
    return name.removeprefix(PREFIX).replace(_BASE, ".")


def merged_weight(name: str, weight: Any, adapters: dict[str, Any], scale: float) -> Any:
    """W + alpha / r B A, computed in 32 bits; a weight without an adapter as it is."""
    layer, base, kind = name.rpartition(_BASE)
    if not base or kind != "weight" or f"{layer}{_A}" not in adapters:
        return weight
    change = adapters[f"{layer}{_B}"].float() @ adapters[f"{layer}{_A}"].float()
    return (weight.float() + scale * change).to(weight.dtype)
