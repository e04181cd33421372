"""Small tokenizers with the special tokens, pre-tokenisers and published chat templates of real model families."""
# ruff: noqa: RUF001 - the bars in DeepSeek's tokens look like others

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rlfactory_core.chat.qwen3_template import QWEN3_TEMPLATE

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA_SPLIT = QWEN_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
O200K_SPLIT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_SPLIT = (
    "\\p{N}{1,3}|[\u4e00-\u9fa5\u3040-\u30ff]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Kind:
    """What a family's tokenizer has beside its text tokens."""

    special: tuple[str, ...]
    added: tuple[str, ...] = ()  # added tokens that are not special
    split: str | None = QWEN_SPLIT  # the pre-tokeniser's pattern; None: SentencePiece's spaces
    nfc: bool = False
    bos: str | None = None
    eos: str = ""


QWEN = Kind(
    ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    nfc=True,
    eos="<|im_end|>",
)
LLAMA = Kind(
    (
        *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
        *("<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
    ),
    split=LLAMA_SPLIT,
    bos="<|begin_of_text|>",
    eos="<|eot_id|>",
)
DEEPSEEK = Kind(
    ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    (
        *("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "<｜tool▁sep｜>"),
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
        *("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    ),
    split=DEEPSEEK_SPLIT,
    bos="<｜begin▁of▁sentence｜>",
    eos="<｜end▁of▁sentence｜>",
)
GLM = Kind(
    ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    (
        *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
        *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    split=LLAMA_SPLIT,
    eos="<|endoftext|>",
)
GPT_OSS = Kind(
    (
        *("<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>"),
        *("<|start|>", "<|end|>", "<|message|>", "<|call|>"),
    ),
    split=O200K_SPLIT,
    bos="<|startoftext|>",
    eos="<|return|>",
)
MISTRAL = Kind(
    (
        *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
        *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[ARGS]", "[CALL_ID]"),
    ),
    split=O200K_SPLIT,
    bos="<s>",
    eos="</s>",
)


def published(name: str) -> str:
    """A template that the authors of a model family published, as trl brings it."""
    trl = pytest.importorskip("trl", reason="trl brings the published templates")
    return (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


@cache
def make_tokenizer(template: str | None = QWEN3_TEMPLATE, kind: Kind = QWEN) -> Any:
    """A BPE tokenizer of the kind, trained on a few lines that every family writes; do not change it."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=_core(kind), bos_token=kind.bos, eos_token=kind.eos or None, chat_template=template
    )


def _core(kind: Kind) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    pre = tokenizers.pre_tokenizers
    core = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=kind.split is None))
    if kind.nfc:
        core.normalizer = tokenizers.normalizers.NFC()
    if kind.split is None:
        core.pre_tokenizer = pre.Metaspace(prepend_scheme="first", split=False)
        core.decoder = tokenizers.decoders.Sequence(
            [tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse(), tokenizers.decoders.Metaspace()]
        )
        alphabet = [chr(code) for code in range(32, 127)] + ["▁", "\n", "\t", "é"]
    else:
        byte_level = pre.ByteLevel(add_prefix_space=False, use_regex=False)
        core.pre_tokenizer = pre.Sequence([pre.Split(tokenizers.Regex(kind.split), "isolated"), byte_level])
        core.decoder = tokenizers.decoders.ByteLevel()
        alphabet = pre.ByteLevel.alphabet()
    fallback = [f"<0x{byte:02X}>" for byte in range(256)] if kind.split is None else []
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1000 if fallback else 700, initial_alphabet=alphabet, special_tokens=fallback, show_progress=False
    )
    text = "Who leads the company?\n\n  It is led by Ann Lee, since 1999.\r\n\n\n\t<answer>Ann</answer>\n" * 3
    core.train_from_iterator([QWEN3_TEMPLATE, text, "\n" * 8, " " * 8 + "\n\n  \n"], trainer)
    core.add_special_tokens([tokenizers.AddedToken(name, special=True, normalized=False) for name in kind.special])
    core.add_tokens([tokenizers.AddedToken(name, special=False, normalized=False) for name in kind.added])
    return core
