"""Small tokenizers of real model families, with the chat templates that they published."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rlfactory_devkit.tokenizers import TokenizerKind as Kind
from rlfactory_devkit.tokenizers import build_tokenizer, tokenizer_kinds

from rlfactory_core.chat.families.qwen3 import QWEN3_TEMPLATE

__all__ = [
    "DEEPSEEK",
    "DEEPSEEK_V32",
    "GEMMA3",
    "GEMMA4",
    "GLM",
    "GPT_OSS",
    "HUNYUAN",
    "KIMI",
    "LFM2",
    "LLAMA",
    "LLAMA4",
    "MINIMAX",
    "MISTRAL",
    "PHI3",
    "PHI4_MINI",
    "QWEN",
    "SEED",
    "Kind",
    "llama4_template",
    "make_tokenizer",
    "published",
    "spaced",
]

KINDS = tokenizer_kinds()
QWEN, LLAMA, LLAMA4, MISTRAL = KINDS["qwen3"], KINDS["llama3"], KINDS["llama4"], KINDS["mistral"]
DEEPSEEK, DEEPSEEK_V32, GLM, GPT_OSS = (KINDS[name] for name in ("deepseek-v3", "deepseek-v3.2", "glm-4.5", "gpt-oss"))
HUNYUAN, KIMI, LFM2, MINIMAX = (KINDS[name] for name in ("hunyuan-v3", "kimi-k2", "lfm2", "minimax-m2"))
SEED, GEMMA4 = KINDS["seed-oss"], KINDS["gemma-4"]
PHI3 = Kind(("<s>", "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"), bos="<s>", eos="<|end|>")
PHI4_MINI = Kind(
    ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|tool|>", "<|/tool|>"),
    eos="<|endoftext|>",
)
GEMMA3 = Kind(("<pad>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"), bos="<bos>", eos="<end_of_turn>")


def published(name: str) -> str:
    """A template that the authors of a model family published, as trl brings it."""
    trl = pytest.importorskip("trl", reason="trl brings the published templates")
    return (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


def llama4_template() -> str:
    """Llama 4's own template, as transformers brings it."""
    module = pytest.importorskip("transformers.models.llama4.processing_llama4")
    template: str = module.chat_template
    return template


@cache
def make_tokenizer(template: str | None = QWEN3_TEMPLATE, kind: Kind = QWEN) -> Any:
    """A small tokenizer of the kind with the template; do not change it."""
    tokenizer = deepcopy(_plain(kind))
    tokenizer.chat_template = template
    return tokenizer


@cache
def _plain(kind: Kind) -> Any:
    """The kind's tokenizer without a template, trained once."""
    return build_tokenizer(kind, None)


def spaced(kind: Kind) -> Any:
    """A tokenizer core with SentencePiece's spaces in place of the kind's pre-tokeniser."""
    tokenizers = pytest.importorskip("tokenizers")
    core = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    core.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse(), tokenizers.decoders.Metaspace()]
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1000,
        initial_alphabet=[chr(code) for code in range(32, 127)] + ["▁", "\n", "\t", "é"],
        special_tokens=[f"<0x{byte:02X}>" for byte in range(256)],
        show_progress=False,
    )
    core.train_from_iterator([QWEN3_TEMPLATE, "\n" * 8, " " * 8 + "\n\n  \n"], trainer)
    core.add_special_tokens([tokenizers.AddedToken(name, special=True, normalized=False) for name in kind.special])
    core.add_tokens([tokenizers.AddedToken(name, special=False, normalized=False) for name in kind.added])
    return core
