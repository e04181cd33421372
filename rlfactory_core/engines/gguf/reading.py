"""Makes a Hugging Face folder of a GGUF file, once: its weights are de-quantised, and the folder stays in the cache."""

from __future__ import annotations

import copy
import io
import json
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock

from rlfactory_core.cache import build_once, cache_root, file_digest
from rlfactory_core.engines.exports import NOWHERE, complete
from rlfactory_core.engines.gguf.header import SUFFIX, Header, is_gguf, read_header
from rlfactory_core.engines.gguf.rope import TENSOR, llama3_parameters
from rlfactory_core.engines.gguf.splits import set_split
from rlfactory_core.errors import MissingExtraError, ModelError, RlfactoryError
from rlfactory_core.reporting.progress import Progress

_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_CONTROL, _USER_DEFINED = 3, 4  # in tokenizer.ggml.token_type: tokens that a text is searched for before it is split
_AS_IT_IS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
_LARGE = 10**9  # parameters, from which on the folder has bfloat16 instead of float32
_WIDE = ("qwen3", "qwen3moe")  # architectures whose width of a head transformers does not read
_OWN_ROPE = ("gpt-oss", "qwen35", "qwen35moe")  # architectures whose scaled positions transformers reads


def as_folder(model: str, progress: Progress | None = None) -> str:
    """The folder of a model that may be a GGUF file; any other model is returned as it is.

    Raises:
        ModelError: the file is missing, damaged, or of a kind that transformers does not read exactly.
        MissingExtraError: a package is not installed.
        DataError: the cache cannot be written.
    """
    if not is_gguf(model) or Path(model).is_dir():
        return model
    file = Path(model).expanduser()
    header = read_header(file)
    folder = cache_root() / "gguf" / f"{file.stem}-{file_digest(file, cache_root())[:12]}"
    if not folder.is_dir():
        _check_packages(file)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):  # not in several processes at once
            build_once(folder, partial(_build, file, header, progress or Progress()))
    return str(folder)


def _check_packages(file: Path) -> None:
    try:
        import accelerate  # noqa: F401 - transformers needs it to read a GGUF file
        import gguf  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"To read '{file}' the package {error.name} is needed, which is not installed: "
            "python -m pip install 'rlfactory-core[local]'"
        ) from error


def _build(file: Path, header: Header, progress: Progress, folder: Path) -> None:
    size = sum(tensor.elements for tensor in header.tensors.values())
    progress.stage(f"de-quantise {file.name} ({size / 1e6:,.0f} M parameters, once)", 2, "part")
    unpack(file, folder, progress)


def unpack(file: Path, folder: Path, progress: Progress) -> None:
    """Write a GGUF file as a Hugging Face folder.

    Raises:
        ModelError: the file is damaged, or is not read exactly.
    """
    with _explained(file), tempfile.TemporaryDirectory() as empty:
        alone = Path(empty) / f"model{SUFFIX}"  # transformers prefers a tokenizer.json beside it
        alone.symlink_to(file.resolve())
        model, tokenizer = _read(file, alone)
        progress.advance()
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        complete(folder, NOWHERE)
        progress.advance()


def _read(file: Path, alone: Path) -> tuple[Any, Any]:
    """A model that can only be saved, and its tokenizer: as transformers reads them, with what it leaves out.

    Args:
        alone: a link to the file, in a folder of its own.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    header, where = read_header(file), {"pretrained_model_name_or_path": str(alone.parent), "gguf_file": alone.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    if header.metadata.get("tokenizer.ggml.model") == "gpt2":
        tokenizer = _byte_level(file, header, tokenizer.backend_tokenizer)
    config = AutoConfig.from_pretrained(**where)
    width = header.metadata.get(f"{header.architecture}.attention.key_length")
    if width is not None and header.architecture in _WIDE:
        config.head_dim = width
    size = sum(tensor.elements for tensor in header.tensors.values())
    dtype = torch.float32 if size < _LARGE else torch.bfloat16
    with redirect_stderr(io.StringIO()):  # for its progress bar, which it always shows
        model, info = AutoModelForCausalLM.from_pretrained(
            **where, **_in_full(), config=config, dtype=dtype, output_loading_info=True
        )
    _check_whole(file, header, model, info)
    _set_rope(file, header, model.config)
    return _without_quantization(model), tokenizer


def _byte_level(file: Path, header: Header, backend: Any) -> Any:
    """The tokenizer that the file describes: transformers adds other tokens, and does not know all splits."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    metadata = header.metadata
    core = json.loads(backend.to_str())
    kinds = enumerate(metadata.get("tokenizer.ggml.token_type", ()))
    core["added_tokens"] = [
        {"id": id_, "content": backend.id_to_token(id_), "special": kind == _CONTROL, **_AS_IT_IS}
        for id_, kind in kinds
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    plain = Tokenizer.from_str(json.dumps(core))
    set_split(plain, str(metadata.get("tokenizer.ggml.pre", "default")), str(file))
    ids = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in _SPECIAL.items()}
    special = {name: plain.id_to_token(id_) for name, id_ in ids.items() if id_ is not None}
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, chat_template=metadata.get("tokenizer.chat_template"), **special
    )


def _in_full() -> dict[str, Any]:
    """Newer releases of transformers can leave the weights packed."""
    import transformers

    config = getattr(transformers, "GgufConfig", None)
    return {} if config is None else {"quantization_config": config(dequantize=True)}


def _without_quantization(model: Any) -> Any:
    """A model that can be saved: transformers refuses to save the one that it has read."""
    import torch

    config = copy.deepcopy(model.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        plain = type(model)(config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    return plain


def _check_whole(file: Path, header: Header, model: Any, info: Any) -> None:
    """transformers leaves out a tensor that it has no place for, and initialises one that is missing."""
    tied = getattr(model, "all_tied_weights_keys", None) or ()
    missing = {*info["missing_keys"], *info["mismatched_keys"]} - {*tied}
    theirs = sum(tensor.elements for name, tensor in header.tensors.items() if name != TENSOR)
    ours = sum(parameter.numel() for parameter in model.parameters())
    if missing or ours != theirs:
        lacks = f"; it lacks {', '.join(sorted(map(str, missing))[:3])}" if missing else ""
        raise ModelError(
            f"The GGUF file '{file}' ({header.architecture}) is not read exactly: it has {theirs:,} numbers, and "
            f"the model of transformers {ours:,}{lacks}. Give --model the original Hugging Face folder."
        )


def _set_rope(file: Path, header: Header, config: Any) -> None:
    """The scaling of positions, which transformers does not read."""
    scaling = header.metadata.get(f"{header.architecture}.rope.scaling.type", "none")
    if scaling != "none" and header.architecture not in _OWN_ROPE:
        raise ModelError(
            f"The GGUF file '{file}' scales its positions ({scaling}), which is not read. Give --model the original "
            "Hugging Face folder."
        )
    if (tensor := header.tensors.get(TENSOR)) is None:
        return
    with file.open("rb") as opened:
        opened.seek(tensor.offset)
        factors = struct.unpack(f"<{tensor.elements}f", opened.read(4 * tensor.elements))
    rope = llama3_parameters(factors, config.rope_parameters["rope_theta"])
    if rope is None:
        raise ModelError(
            f"The GGUF file '{file}' scales its positions by factors that are not those of Llama 3. Give --model the "
            "original Hugging Face folder."
        )
    config.rope_parameters = rope


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    try:
        yield
    except RlfactoryError:
        raise
    except OSError as error:
        raise ModelError(f"The folder of '{file}' cannot be written to the cache {cache_root()}: {error}.") from error
    except Exception as error:  # a damaged file can raise any error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(
            f"The GGUF file '{file}' cannot be read: {reason} If it is whole, give --model the original folder."
        ) from error
