"""Writes a Hugging Face folder as a GGUF file, which llama.cpp and programs on top of it read.

The keys are those of llama.cpp's ``convert_hf_to_gguf.py``. Only architectures and tokenizers that were compared with
their originals are written; a near miss would load, and answer something else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlfactory_core.engines.gguf.rope import TENSOR as ROPE
from rlfactory_core.engines.gguf.rope import llama3_factors
from rlfactory_core.engines.gguf.splits import SPLITS, split_name
from rlfactory_core.errors import MissingExtraError, ModelError

ARCHITECTURES: Mapping[str, str] = {"llama": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3"}
"""Types of models in transformers, and their names in `gguf.MODEL_ARCH`."""

QUANTIZATIONS = ("f32", "f16", "bf16", "q8_0")
_BLOCK = 32  # numbers that share a scale in q8_0
_UNUSED, _NORMAL, _CONTROL, _USER = 5, 1, 3, 4  # types of tokens


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray]  # fp32


def write_gguf(folder: Path, file: Path, quantization: str = "f16") -> None:
    """
    Args:
        folder: a model, with its tokenizer.
        quantization: of the matrices, one of `QUANTIZATIONS`; vectors are always f32.

    Raises:
        ModelError: the architecture or the tokenizer is of a kind that is not written.
        MissingExtraError: the package gguf is not installed.
    """
    try:
        import gguf
    except ImportError as error:
        raise MissingExtraError(
            "A GGUF file is written by the package gguf, which is not installed: python -m pip install gguf"
        ) from error
    from transformers import AutoConfig, AutoTokenizer

    config, tokenizer = AutoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    _check(config)
    architecture = gguf.MODEL_ARCH[ARCHITECTURES[config.model_type]]
    writer = gguf.GGUFWriter(file, gguf.MODEL_ARCH_NAMES[architecture])
    types = {name: gguf.GGMLQuantizationType[name.upper()] for name in QUANTIZATIONS}
    writer.add_type("model")
    writer.add_name(folder.resolve().name)
    writer.add_file_type(gguf.LlamaFileType["ALL_F32" if quantization == "f32" else f"MOSTLY_{quantization.upper()}"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _add_shape(writer, config)
    _add_vocabulary(writer, config, tokenizer)
    with ExitStack() as stack:
        names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
        tensors = [*_tensors(folder, config, names, stack)]
        kinds = [types[_kind(tensor.shape, quantization)] for tensor in tensors]
        for tensor, kind in zip(tensors, kinds, strict=True):
            shape = gguf.quant_shape_to_byte_shape(tensor.shape, kind)
            writer.add_tensor_info(tensor.name, shape, np.dtype(np.uint8), int(np.prod(shape)), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor, kind in zip(tensors, kinds, strict=True):
            writer.write_tensor_data(gguf.quantize(tensor.load(), kind))
        writer.close()


def _kind(shape: tuple[int, ...], quantization: str) -> str:
    if len(shape) == 1:
        return "f32"
    return "f16" if quantization == "q8_0" and shape[-1] % _BLOCK else quantization


def _check(config: Any) -> None:
    if config.model_type not in ARCHITECTURES:
        raise ModelError(
            f"A model of the type '{config.model_type}' is not written as GGUF: expected {', '.join(ARCHITECTURES)}. "
            "llama.cpp's own convert_hf_to_gguf.py may know it: export with --to folder, and convert that folder."
        )
    rope, layers = config.rope_parameters, getattr(config, "layer_types", None) or []
    odd = [
        *([f"hidden_act={config.hidden_act}"] if config.hidden_act != "silu" else []),
        *([f"rope_type={rope['rope_type']}"] if rope["rope_type"] not in _ropes(config) else []),
        *(["biases"] if config.model_type == "llama" and (config.attention_bias or config.mlp_bias) else []),
        *(["sliding windows"] if "sliding_attention" in layers else []),
    ]
    if odd:
        raise ModelError(
            f"This {config.model_type} has {', '.join(odd)}, which is not written as GGUF. Export with --to folder, "
            "and convert that folder by llama.cpp's own convert_hf_to_gguf.py."
        )


def _ropes(config: Any) -> tuple[str, ...]:
    return ("default", "llama3") if config.model_type == "llama" else ("default",)


def _head(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _add_shape(writer: Any, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(_head(config))
    writer.add_value_length(_head(config))
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if config.model_type == "llama":
        writer.add_rope_dimension_count(_head(config))


def _add_vocabulary(writer: Any, config: Any, tokenizer: Any) -> None:
    core = json.loads(tokenizer.backend_tokenizer.to_str())
    split = split_name(tokenizer.backend_tokenizer)
    if core["model"]["type"] != "BPE" or core["model"].get("byte_fallback") or split is None:
        raise ModelError(
            "The model's tokenizer is not written as GGUF: expected byte-level BPE that splits texts as one of "
            f"{', '.join(SPLITS)}. Export with --to folder, and convert that folder by llama.cpp's own "
            "convert_hf_to_gguf.py."
        )
    added = {int(id_): token for id_, token in tokenizer.added_tokens_decoder.items()}
    words = {id_: word for word, id_ in tokenizer.get_vocab().items()}
    tokens = [words.get(id_, f"[PAD{id_}]") for id_ in range(config.vocab_size)]
    if max(words) >= len(tokens):
        raise ModelError(f"The tokenizer has {max(words) + 1} tokens, and the model {len(tokens)}.")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types([_token_type(id_, words, added) for id_ in range(len(tokens))])
    merges = core["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    for name, add in (
        ("bos", writer.add_bos_token_id),
        ("eos", writer.add_eos_token_id),
        ("unk", writer.add_unk_token_id),
        ("pad", writer.add_pad_token_id),
    ):
        if (id_ := getattr(tokenizer, f"{name}_token_id")) is not None:
            add(id_)
    bos = tokenizer.bos_token_id
    writer.add_add_bos_token(bos is not None and tokenizer("a").input_ids[:1] == [bos])
    writer.add_add_space_prefix(False)  # noqa: FBT003 - the writer's own name for it
    if isinstance(tokenizer.chat_template, str):
        writer.add_chat_template(tokenizer.chat_template)


def _token_type(id_: int, words: Mapping[int, str], added: Mapping[int, Any]) -> int:
    if id_ not in words:
        return _UNUSED
    if id_ not in added:
        return _NORMAL
    return _CONTROL if added[id_].special else _USER


def _tensors(folder: Path, config: Any, names: Any, stack: ExitStack) -> Iterator[_Tensor]:
    """The model's tensors by llama.cpp's names, each read from its file when it is written."""
    from safetensors import safe_open

    for path in sorted(folder.glob("*.safetensors")):
        opened = stack.enter_context(safe_open(path, "pt"))
        for name in opened.keys():  # noqa: SIM118 - it is no mapping
            if name == "lm_head.weight" and config.tie_word_embeddings:
                continue
            ours = names.get_name(name, try_suffixes=(".weight", ".bias"))
            if ours is None:
                raise ModelError(f"The tensor '{name}' of this {config.model_type} has no place in a GGUF file.")
            shape = tuple(opened.get_slice(name).get_shape())
            yield _Tensor(ours, shape, _loader(opened, name, config))
    rope = config.rope_parameters
    if rope["rope_type"] == "llama3":
        factors = np.array(llama3_factors(rope, _head(config)), np.float32)
        yield _Tensor(ROPE, factors.shape, lambda: factors)


def _loader(opened: Any, name: str, config: Any) -> Callable[[], np.ndarray]:
    def load() -> np.ndarray:
        found: np.ndarray = opened.get_tensor(name).float().numpy()
        if config.model_type != "llama" or not name.endswith(("q_proj.weight", "k_proj.weight")):
            return found
        # llama.cpp rotates neighbouring numbers, transformers those of the two halves of a head.
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        return found.reshape(heads, 2, -1, *found.shape[1:]).swapaxes(1, 2).reshape(found.shape)

    return load
