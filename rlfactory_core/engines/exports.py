"""Completes a policy's Hugging Face folder, so that programs older than our transformers read it correctly.

Training changes the weights alone. So all else is what the start model's folder has: the configuration, the tokenizer
with its class and vocabulary, the image processor, the licence. What transformers 5 writes in their place is read by no
program that is pinned to transformers 4.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory_core.algo.settings import LoraConfig
from rlfactory_core.engines.adapters import BASE_BITS, PREFIX, WEIGHTS
from rlfactory_core.engines.adapters import CONFIG as ADAPTER_CONFIG
from rlfactory_core.engines.model_config import NEW, with_older_keys

ADAPTER = "adapter"  # the folder of LoRA adapters
CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".gguf", ".npz", ".pkl", ".zip")
_OF_A_RUN = (ADAPTER_CONFIG, "trainer_state.json", "rlfactory_state.json")
_DTYPES = ("dtype", "torch_dtype")  # transformers 5 reads both, older releases the second


@dataclass(frozen=True, slots=True)
class Origin:
    """What a policy's folder has besides its weights."""

    model: str = ""  # of the start: a folder or a hub id; "" for none
    stop_token_ids: tuple[int, ...] = ()  # of the chat format: what ends a turn
    fallback: Path | None = None  # an earlier export, for a start model that is gone


NOWHERE = Origin()


def complete(folder: Path, origin: Origin) -> None:
    """Bring the start model's files into a folder that transformers has written, and mend what others misread."""
    sources = (path for path in (_folder(origin.model), origin.fallback) if path and (path / CONFIG).exists())
    source = next(sources, None)
    saved = _read(folder / CONFIG)
    if source is not None:
        _copy(source, folder)
        saved = _kept(_read(source / CONFIG), saved)
    _write(folder / CONFIG, with_older_keys(saved))
    _write(folder / GENERATION, _with_stops(_read(folder / GENERATION), origin.stop_token_ids))
    if (folder / TOKENIZER).exists():
        _write(folder / TOKENIZER, _for_any_release(_read(folder / TOKENIZER)))
    like = (folder / CONFIG).stat().st_mode & 0o777
    for path in folder.rglob("*"):  # safetensors writes files that their owner alone can read
        if path.is_file():
            path.chmod(like)


def _folder(model: str) -> Path | None:
    if not model or Path(model).is_dir():
        return Path(model) if model else None
    from huggingface_hub import snapshot_download

    ignored = ["*/*", *(f"*{suffix}" for suffix in _WEIGHTS)]
    for offline in (False, True):
        with suppress(Exception):  # the hub is a courtesy here: what is in the cache will do
            return Path(snapshot_download(model, ignore_patterns=ignored, local_files_only=offline))
    return None


def _copy(source: Path, folder: Path) -> None:
    """The source's files in place of the saved ones, which differ by the release that wrote them."""
    files = [path for path in source.iterdir() if path.is_file() and _is_kept(path.name)]
    names = {path.name for path in files}
    if TOKENIZER in names:
        names.add("tokenizer.json")  # which transformers has made where the source has a vocabulary alone
        for path in folder.iterdir():
            if path.is_file() and _is_kept(path.name) and path.name not in {*names, CONFIG, GENERATION}:
                path.unlink()
        shutil.rmtree(folder / "additional_chat_templates", ignore_errors=True)
    for path in files:
        if path.name != CONFIG:
            shutil.copyfile(path, folder / path.name)
    templates = source / "additional_chat_templates"
    if templates.is_dir():
        shutil.copytree(templates, folder / templates.name, copy_function=shutil.copyfile, dirs_exist_ok=True)


def _is_kept(name: str) -> bool:
    return not name.startswith(".") and not name.endswith((*_WEIGHTS, ".index.json")) and name not in _OF_A_RUN


def _kept(source: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """The source's configuration, with what is true of the saved weights."""
    own = dict(source)
    if "architectures" in saved:
        own["architectures"] = saved["architectures"]
    if "quantization_config" not in saved:
        own.pop("quantization_config", None)
    dtype = next((saved[key] for key in _DTYPES if saved.get(key)), None)
    if dtype and ("model_type" in source or any(key in source for key in _DTYPES)):
        own |= dict.fromkeys(_DTYPES, dtype)
    if isinstance(saved.get(NEW), Mapping):
        own[NEW] = saved[NEW]
    for key, value in source.items():
        if key.endswith("_config") and isinstance(value, Mapping) and isinstance(saved.get(key), Mapping):
            own[key] = _kept(value, saved[key])
    return own


def _with_stops(generation: Mapping[str, Any], stops: Iterable[int]) -> dict[str, Any]:
    known = generation.get("eos_token_id")
    known = [] if known is None else known if isinstance(known, list) else [known]
    ids = list(dict.fromkeys([*known, *stops]))
    if not ids:
        return dict(generation)
    own = {key: value for key, value in generation.items() if key != "_from_model_config"}  # transformers 4 would
    return {**own, "eos_token_id": ids[0] if len(ids) == 1 else ids}  # take the one of config.json


def _for_any_release(tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """Names that transformers 4 and 5 both know."""
    own = dict(tokenizer)
    if own.get("tokenizer_class") == "TokenizersBackend":
        own["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(own.get("extra_special_tokens"), list):  # transformers 4 expects a mapping there, and fails
        own.setdefault("additional_special_tokens", own["extra_special_tokens"])
        del own["extra_special_tokens"]
    return own


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found if isinstance(found, dict) else {}


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Unless the file says so already."""
    if content != _read(path):
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_adapter(checkpoint: Path, lora: LoraConfig, weights: Mapping[str, Any], base: str) -> None:
    """Write PEFT's ``adapter/adapter_model.safetensors`` and ``adapter/adapter_config.json``.

    Args:
        weights: tensors by the names of a plain model with ``.lora_A.weight`` or ``.lora_B.weight`` behind the layer's.
        base: the model to which the adapters belong, for ``base_model_name_or_path``.
    """
    from safetensors.torch import save_file

    folder = checkpoint / ADAPTER
    folder.mkdir(exist_ok=True)
    tensors = {f"{PREFIX}{name}": tensor.contiguous() for name, tensor in weights.items()}
    metadata = {"format": "pt"} | ({BASE_BITS: str(lora.base_bits)} if lora.base_bits else {})
    save_file(tensors, str(folder / WEIGHTS), metadata)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(Path(base).resolve()) if base and Path(base).is_dir() else base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "bias": "none",
        "target_modules": sorted({name.rsplit(".", 3)[-3] for name in weights}),  # such as ``q_proj``
    }
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
