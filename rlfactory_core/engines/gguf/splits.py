"""How a byte-level tokenizer splits a text before it merges bytes: Hugging Face's description, and llama.cpp's name.

A GGUF file names the rule (``tokenizer.ggml.pre``), whose patterns llama.cpp knows (src/llama-vocab.cpp). A folder has
the patterns in tokenizer.json. With another rule a model reads other tokens than in its training, without any error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rlfactory_core.errors import ModelError

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGIT = r"\p{N}"
_ENDS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
LLAMA3 = rf"{_WORDS}\p{{N}}{{1,3}}{_ENDS}"
QWEN2 = rf"{_WORDS}{DIGIT}{_ENDS}"
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS: Mapping[str, tuple[str, ...]] = {
    "gpt-2": (GPT2,),
    "smollm": (DIGIT, GPT2),
    "llama-bpe": (LLAMA3,),
    "qwen2": (QWEN2,),
    "qwen35": (QWEN35,),
}
"""llama.cpp's name, and the patterns that it applies one after another."""

_SAME = {
    **dict.fromkeys(("phi-2", "mpt", "olmo", "exaone4"), "gpt-2"),
    **dict.fromkeys(("starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), "smollm"),
    **dict.fromkeys(("llama3", "llama-v3", "falcon3", "pixtral", "lfm2", "dbrx", "smaug-bpe"), "llama-bpe"),
    **dict.fromkeys(("deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan"), "qwen2"),
}
_NFC = ("qwen2", "qwen35")  # whose tokenizers normalise a text first
_WHOLE_WORDS = ("llama-bpe",)  # whose tokenizers take a word of the vocabulary without merging it


def set_split(backend: Any, name: str, file: str) -> None:
    """Give a tokenizer of the package tokenizers the rule that a GGUF file names.

    Raises:
        ModelError: the rule is not known here.
    """
    from tokenizers import Regex, normalizers, pre_tokenizers

    known = _SAME.get(name, name)
    if known not in SPLITS:
        raise ModelError(
            f"The GGUF file '{file}' splits texts by the rule '{name}', which cannot be read; known are "
            f"{', '.join(sorted({*SPLITS, *_SAME}))}. Give --model the original Hugging Face folder."
        )
    *before, last = SPLITS[known]
    parts: list[Any] = [
        pre_tokenizers.Digits(individual_digits=True) for _ in before
    ]  # the only one that stands before another
    if last != GPT2:
        parts.append(pre_tokenizers.Split(Regex(last), "isolated"))
    parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=last == GPT2))
    backend.pre_tokenizer = pre_tokenizers.Sequence(parts)
    backend.normalizer = normalizers.NFC() if known in _NFC else None
    backend.model.ignore_merges = known in _WHOLE_WORDS


def split_name(backend: Any) -> str | None:
    """llama.cpp's name for the rule of a tokenizer; None if it has none that is known here."""
    rule = json.loads(backend.to_str())["pre_tokenizer"] or {}
    parts = rule["pretokenizers"] if rule.get("type") == "Sequence" else [rule]
    patterns: list[str | None] = []
    for part in parts:
        match part:
            case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}:
                patterns.append(pattern)
            case {"type": "Digits", "individual_digits": True}:
                patterns.append(DIGIT)
            case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}:
                patterns.append(GPT2)
            case {"type": "ByteLevel", "add_prefix_space": False}:
                continue
            case _:
                patterns.append(None)
    return next((name for name, known in SPLITS.items() if tuple(patterns) == known), None)
