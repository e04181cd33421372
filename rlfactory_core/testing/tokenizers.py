"""Tiny tokenizers: every chat format can be tried without a download or a model."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING, Any

from rlfactory_core.chat.qwen3_template import QWEN3_TEMPLATE
from rlfactory_core.errors import MissingExtraError, UsageError, nearest
from rlfactory_core.testing import tokenizer_kinds as kinds

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_KINDS = {
    "qwen3": kinds.QWEN,
    "qwen2.5": kinds.QWEN,
    "qwen3-coder": kinds.QWEN,
    "llama3": kinds.LLAMA,
    "mistral": kinds.MISTRAL,
    "deepseek-v3": kinds.DEEPSEEK,
    "glm-4.5": kinds.GLM,
    "gpt-oss": kinds.GPT_OSS,
    "hermes": kinds.QWEN,
}
_LINES = "Who leads the company?\n\n  It is led by Ann Lee, since 1999.\r\n\n\n\t<answer>Ann</answer>\n" * 3


def families() -> tuple[str, ...]:
    """The model families that `tiny_tokenizer` knows, by their chat formats' names."""
    return tuple(_KINDS)


def tiny_tokenizer(family: str = "qwen3", texts: Iterable[str] = ()) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of under 1000 tokens that speaks as a model family does; made in well under a second.

    It has the family's special tokens, pre-tokenizer and a chat template in its published layout, so that the family's
    chat format is chosen, and meets what is peculiar to it. Its text tokens are its own. ``hermes`` stands for models
    without a family: ChatML turns, and a template without tools, calls and results.

    Args:
        texts: to learn tokens from, beside a few lines that every task's texts resemble.

    Raises:
        UsageError: no such family.
        MissingExtraError: transformers or tokenizers are not installed.
    """
    if family not in _KINDS:
        raise UsageError(f"there is no tiny tokenizer of the family '{family}'. {nearest(family, _KINDS)}")
    return build_tokenizer(_KINDS[family], chat_template(family), texts)


def chat_template(family: str) -> str:
    """The family's template as `tiny_tokenizer` has it."""
    if family == "qwen3":
        return QWEN3_TEMPLATE
    return (resources.files(__package__) / "templates" / f"{family}.jinja").read_text(encoding="utf-8")


def build_tokenizer(
    kind: kinds.TokenizerKind, template: str | None, texts: Iterable[str] = ()
) -> PreTrainedTokenizerFast:
    """See `tiny_tokenizer`, for a kind and a template of one's own.

    Raises:
        MissingExtraError: transformers or tokenizers are not installed.
    """
    try:
        from transformers import PreTrainedTokenizerFast

        core = kinds.byte_level_bpe(kind, [QWEN3_TEMPLATE, _LINES, *texts, "\n" * 8, " " * 8 + "\n\n  \n"])
    except ImportError as error:
        raise MissingExtraError(
            f"A tiny tokenizer needs the packages transformers and tokenizers ({error}). Install them: "
            "python -m pip install 'rlfactory-core[local]'"
        ) from error
    tokens: dict[str, Any] = {"bos_token": kind.bos, "eos_token": kind.eos or None}
    return PreTrainedTokenizerFast(tokenizer_object=core, chat_template=template, **tokens)
