"""What ``--dry-run`` looks at beyond the configuration: the data's columns, and the files of the model's folder."""

from __future__ import annotations

import json
from pathlib import Path

from rlfactory_core.engines.gguf.header import is_gguf, read_header
from rlfactory_core.errors import ModelError
from rlfactory_core.runner.resolved import Resolved
from rlfactory_core.tasks.setup import Tasks

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tekken.json", "spiece.model")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.gguf")
_LFS = b"version https://git-lfs"


def check_inputs(resolved: Resolved) -> None:
    """Read the user's own data, and look for the files of a model's folder; nothing is loaded."""
    for setup in resolved.tasks.by_name.values():
        if setup.data.train is not None:
            setup.samples("train")
        if setup.data.eval is not None:
            Tasks({"": setup}).held_out(required=True)
    if resolved.config.model is not None:
        check_model_folder(resolved.config.model)


def check_model_folder(model: str) -> None:
    """Raise a `ModelError` unless a folder has all files of a model, or a GGUF file its header.

    A hub id is not looked up.
    """
    folder = Path(model).expanduser()
    if is_gguf(model) and not folder.is_dir():
        read_header(folder)
        return
    if not folder.is_dir():
        if model.startswith((".", "/", "~")) or model.count("/") > 1:
            raise ModelError(f"There is no model folder '{model}'. Give a folder with config.json, or a hub id.")
        return
    weights = [path for pattern in _WEIGHTS for path in sorted(folder.glob(pattern))]
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    missing += [] if weights else ["the weights (model.safetensors)"]
    missing += _missing_shards(folder)
    if not any((folder / name).is_file() for name in _TOKENIZERS) and not any(folder.glob("*.tiktoken")):
        missing.append("the tokenizer (tokenizer.json)")
    if missing:
        raise ModelError(f"The model folder '{model}' is incomplete: it lacks {', '.join(missing)}. Copy it again.")
    for path in weights:
        with path.open("rb") as file:
            begin = file.read(len(_LFS))
        if begin in (b"", _LFS):
            what = "a pointer of Git LFS in the place of weights: git lfs pull" if begin else "empty. Copy it again."
            raise ModelError(f"{path} is {what}")


def _missing_shards(folder: Path) -> list[str]:
    """The files that an index of the weights names, and that are not there."""
    for index in (*folder.glob("model.safetensors.index.json"), *folder.glob("pytorch_model.bin.index.json")):
        try:
            named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError):
            return [f"a readable {index.name}"]
        return [name for name in sorted(named) if not (folder / name).is_file()]
    return []
