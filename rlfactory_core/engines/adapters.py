"""A folder of PEFT with a LoRA adapter, as the start of a training: its base model, and the keys of ``train.lora``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory_core.errors import ModelError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
BASE_BITS = "base_bits"  # in the metadata of the weights
_MOST_HEADER = 10**8  # bytes, as in the format: https://github.com/huggingface/safetensors
PREFIX = "base_model.model."  # of the names of the weights, as PEFT writes them

_PLAIN: Mapping[str, tuple[Any, ...]] = {
    # key -> the values with which an adapter is nothing but two matrices beside each layer
    "peft_type": ("LORA",),
    "bias": ("none", None),
    **dict.fromkeys(("use_dora", "use_rslora", "lora_bias", "fan_in_fan_out"), (False, None)),
    **dict.fromkeys(("rank_pattern", "alpha_pattern"), ({}, None)),
    **dict.fromkeys(("modules_to_save", "layers_to_transform", "layers_pattern", "layer_replication"), (None, [])),
    **dict.fromkeys(("exclude_modules", "target_parameters", "trainable_token_indices"), (None, [])),
}


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """What ``adapter_config.json`` says."""

    base: str  # a folder or a hub id
    lora: Mapping[str, Any]  # keys of ``train.lora``


def is_adapter(folder: Path) -> bool:
    """Whether a folder has an adapter and no model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def read_adapter(folder: Path) -> AdapterFolder:
    """
    Raises:
        ModelError: the adapter is damaged, of a kind that is not trained here, or its base model is not known.
    """
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        lora = {
            "rank": int(config["r"]),
            "alpha": int(config["lora_alpha"]),
            "dropout": float(config.get("lora_dropout") or 0.0),
            "targets": _targets(config["target_modules"]),
            "adapter": str(folder),
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"The adapter in '{folder}' cannot be read: {CONFIG}: {error!r}. Copy it again.") from error
    if unknown := ", ".join(_unknown(config)):
        raise ModelError(
            f"The adapter in '{folder}' cannot be trained further: it has {unknown}; expected plain LoRA. Merge it "
            "into its base model (merge_and_unload of PEFT), and name the merged folder."
        )
    if not (folder / WEIGHTS).is_file():
        raise ModelError(f"The adapter in '{folder}' has no {WEIGHTS}. Copy it again, or save it as safetensors.")
    base = config.get("base_model_name_or_path") or ""
    if not base or (Path(base).is_absolute() and not Path(base).exists()):
        raise ModelError(
            f"The base model '{base}' of the adapter in '{folder}' is not on this machine. Put its folder or hub id "
            f"into {folder / CONFIG}, as base_model_name_or_path."
        )
    try:
        return AdapterFolder(base, {**lora, **_base_bits(folder / WEIGHTS)})
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"The adapter in '{folder}' cannot be read: {WEIGHTS}: {error!r}. Copy it again.") from error


def _base_bits(weights: Path) -> Mapping[str, int]:
    """The key ``base_bits`` if the adapter was trained beside a base in 4 bits; PEFT has none for it.

    Raises:
        OSError, ValueError, AttributeError: the file is damaged.
    """
    with weights.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size) if size < _MOST_HEADER else b"")
    bits = (header.get("__metadata__") or {}).get(BASE_BITS)
    return {BASE_BITS: int(bits)} if bits else {}


def _targets(value: Any) -> str:
    if isinstance(value, str):
        if value != "all-linear":
            raise ValueError(f"target_modules={value!r} is a pattern; expected a list of layers")
        return value
    return ",".join(sorted(value))


def _unknown(config: Mapping[str, Any]) -> Iterator[str]:
    for key, plain in _PLAIN.items():
        if config.get(key, plain[0]) not in plain:
            yield f"{key}={config[key]}"
