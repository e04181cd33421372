"""Tiny tokenizers of the known model families, to try every chat format without a download or a model.

``templates/`` has their chat templates, and in ``tokenizers.yaml`` their special tokens and patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import yaml

from rlfactory_core.errors import MissingExtraError, UsageError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCABULARY = 700  # tokens of texts; 256 of them are the bytes
_TEMPLATES = resources.files(__package__) / "templates"
_LINES = "Who leads the company?\n\n  It is led by Ann Lee, since 1999.\r\n\n\n\t<answer>Ann</answer>\n" * 3


@dataclass(frozen=True, slots=True)
class TokenizerKind:
    """The properties of a family's tokenizer, apart from its text tokens."""

    special: tuple[str, ...]  # special tokens
    added: tuple[str, ...] = ()  # added tokens that are not special
    split: str = ""  # the pre-tokenizer's pattern; empty: that of Qwen
    nfc: bool = False  # whether texts are normalised
    bos: str | None = None
    eos: str = ""


@cache
def tokenizer_kinds() -> Mapping[str, TokenizerKind]:
    """The kinds of all tiny tokenizers, by family."""
    found: dict[str, TokenizerKind] = {}
    for row in yaml.safe_load((_TEMPLATES / "tokenizers.yaml").read_text(encoding="utf-8"))["kinds"]:
        tokens = tuple(row["special"]), tuple(row.get("added", ()))
        kind = TokenizerKind(*tokens, row["split"], row.get("nfc", False), row.get("bos"), row["eos"])
        found |= dict.fromkeys(row["families"], kind)
    return found


def families() -> tuple[str, ...]:
    """The model families of `tiny_tokenizer`, by the names of their chat formats."""
    return tuple(tokenizer_kinds())


def tiny_tokenizer(family: str = "qwen3", texts: Iterable[str] = ()) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with under 1000 tokens for a model family; made in well under a second.

    It has the family's special tokens, its pre-tokenizer and a chat template in its published layout, so that the
    family's chat format is chosen and its peculiarities are tested. Only the text tokens differ. ``hermes`` is for
    models of no family. It has ChatML turns, and a template without tools, calls and results.

    Args:
        texts: to learn tokens from, beside a few built-in lines.

    Raises:
        UsageError: no such family.
        MissingExtraError: transformers or tokenizers are not installed.
    """
    if family not in tokenizer_kinds():
        raise UsageError(f"there is no tiny tokenizer of the family '{family}'. {nearest(family, tokenizer_kinds())}")
    return build_tokenizer(tokenizer_kinds()[family], chat_template(family), texts)


def chat_template(family: str) -> str:
    """The chat template of a family's tiny tokenizer."""
    return (_TEMPLATES / f"{family}.jinja").read_text(encoding="utf-8")


def build_tokenizer(kind: TokenizerKind, template: str | None, texts: Iterable[str] = ()) -> PreTrainedTokenizerFast:
    """A tiny tokenizer as of `tiny_tokenizer`, with your own kind and template; it can encode any text.

    Raises:
        MissingExtraError: transformers or tokenizers are not installed.
    """
    try:
        from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
        from transformers import PreTrainedTokenizerFast
    except ImportError as error:
        raise MissingExtraError(
            f"A tiny tokenizer needs the packages transformers and tokenizers ({error}). Install them: "
            "python -m pip install 'rlfactory-core[local]'"
        ) from error
    core = Tokenizer(models.BPE())
    if kind.nfc:
        core.normalizer = normalizers.NFC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pattern = Regex(kind.split or tokenizer_kinds()["qwen3"].split)
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, "isolated"), byte_level])
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=byte_level.alphabet(), show_progress=False)
    core.train_from_iterator([chat_template("qwen3"), _LINES, *texts, "\n" * 8, " " * 8 + "\n\n  \n"], trainer)
    core.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in kind.special])
    core.add_tokens([AddedToken(name, special=False, normalized=False) for name in kind.added])
    tokens: dict[str, Any] = {"bos_token": kind.bos, "eos_token": kind.eos or None}
    return PreTrainedTokenizerFast(tokenizer_object=core, chat_template=template, **tokens)
