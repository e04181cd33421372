"""Tiny tokenizers of the known model families, to try every chat format without a download or a model."""
# ruff: noqa: RUF001 - the bars in DeepSeek's tokens look like others

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from rlfactory_core.chat.qwen3 import QWEN3_TEMPLATE
from rlfactory_core.errors import MissingExtraError, UsageError, nearest

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

VOCABULARY = 700  # tokens of texts; 256 of them are the bytes
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


@dataclass(frozen=True, slots=True)
class TokenizerKind:
    """The properties of a family's tokenizer, apart from its text tokens."""

    special: tuple[str, ...]  # special tokens
    added: tuple[str, ...] = ()  # added tokens that are not special
    split: str = QWEN_SPLIT  # the pre-tokeniser's pattern
    nfc: bool = False  # whether texts are normalised
    bos: str | None = None
    eos: str = ""


QWEN = TokenizerKind(
    ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    nfc=True,
    eos="<|im_end|>",
)
LLAMA = TokenizerKind(
    (
        *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
        *("<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
    ),
    split=LLAMA_SPLIT,
    bos="<|begin_of_text|>",
    eos="<|eot_id|>",
)
DEEPSEEK = TokenizerKind(
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
GLM = TokenizerKind(
    ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    (
        *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
        *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    split=LLAMA_SPLIT,
    eos="<|endoftext|>",
)
GPT_OSS = TokenizerKind(
    (
        *("<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>"),
        *("<|start|>", "<|end|>", "<|message|>", "<|call|>"),
    ),
    split=O200K_SPLIT,
    bos="<|startoftext|>",
    eos="<|return|>",
)
MISTRAL = TokenizerKind(
    (
        *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
        *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[ARGS]", "[CALL_ID]"),
    ),
    split=O200K_SPLIT,
    bos="<s>",
    eos="</s>",
)
KIMI = TokenizerKind(
    ("[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"),
    (
        *("<think>", "</think>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    split=O200K_SPLIT,
    bos="[BOS]",
    eos="<|im_end|>",
)
LFM2 = TokenizerKind(
    (
        *("<|startoftext|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|tool_list_start|>", "<|tool_list_end|>"),
        *("<|tool_call_start|>", "<|tool_call_end|>", "<|tool_response_start|>", "<|tool_response_end|>"),
    ),
    ("<think>", "</think>"),
    split=LLAMA_SPLIT,
    bos="<|startoftext|>",
    eos="<|im_end|>",
)
LLAMA4 = TokenizerKind(
    (
        *("<|begin_of_text|>", "<|end_of_text|>", "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>"),
        *("<|python_start|>", "<|python_end|>"),
    ),
    split=O200K_SPLIT,
    bos="<|begin_of_text|>",
    eos="<|eot|>",
)
MINIMAX = TokenizerKind(
    ("]~!b[", "]~b]", "[e~["),
    ("<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>"),
    split=O200K_SPLIT,
    bos="]~!b[",
    eos="[e~[",
)
DEEPSEEK_V32 = TokenizerKind(
    ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    ("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜"),
    split=DEEPSEEK_SPLIT,
    bos="<｜begin▁of▁sentence｜>",
    eos="<｜end▁of▁sentence｜>",
)
HUNYUAN = TokenizerKind(
    tuple(
        f"<｜{name}:opensource｜>"
        for name in ("hy_begin_of_sentence", "hy_eos", "hy_User", "hy_Assistant", "reasoning_mode")
    ),
    tuple(
        f"<{slash}{name}:opensource>"
        for name in (
            *("think", "tool_calls", "tool_call", "tool_sep", "arg_key", "arg_value"),
            *("tool_responses", "tool_response"),
        )
        for slash in ("", "/")
    ),
    split=DEEPSEEK_SPLIT,
    bos="<｜hy_begin_of_sentence:opensource｜>",
    eos="<｜hy_eos:opensource｜>",
)
SEED = TokenizerKind(
    ("<seed:bos>", "<seed:eos>"),
    ("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
    bos="<seed:bos>",
    eos="<seed:eos>",
)
GEMMA4 = TokenizerKind(
    (
        *(
            "<pad>",
            "<bos>",
            "<eos>",
            "<|turn>",
            "<turn|>",
            "<|think|>",
            "<|channel>",
            "<channel|>",
            "<|tool>",
            "<tool|>",
        ),
        *("<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>'),
    ),
    split=LLAMA_SPLIT,
    bos="<bos>",
    eos="<eos>",
)


def add_tokens(core: Tokenizer, kind: TokenizerKind) -> None:
    """Add the kind's own tokens after the text tokens."""
    from tokenizers import AddedToken

    core.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in kind.special])
    core.add_tokens([AddedToken(name, special=False, normalized=False) for name in kind.added])


_KINDS = {
    "qwen3": QWEN,
    "qwen2.5": QWEN,
    "qwen3-coder": QWEN,
    "llama3": LLAMA,
    "mistral": MISTRAL,
    "deepseek-v3": DEEPSEEK,
    "glm-4.5": GLM,
    "gpt-oss": GPT_OSS,
    "minimax-m2": MINIMAX,
    "deepseek-v3.2": DEEPSEEK_V32,
    "hunyuan-v3": HUNYUAN,
    "seed-oss": SEED,
    "kimi-k2": KIMI,
    "lfm2": LFM2,
    "pythonic": LLAMA4,
    "gemma-4": GEMMA4,
    "llama4": LLAMA4,
    "xlam": QWEN,
    "hermes": QWEN,
}
_LINES = "Who leads the company?\n\n  It is led by Ann Lee, since 1999.\r\n\n\n\t<answer>Ann</answer>\n" * 3


def families() -> tuple[str, ...]:
    """The model families of `tiny_tokenizer`, by the names of their chat formats."""
    return tuple(_KINDS)


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
    if family not in _KINDS:
        raise UsageError(f"there is no tiny tokenizer of the family '{family}'. {nearest(family, _KINDS)}")
    return build_tokenizer(_KINDS[family], chat_template(family), texts)


def chat_template(family: str) -> str:
    """The chat template of a family's tiny tokenizer."""
    if family == "qwen3":
        return QWEN3_TEMPLATE
    return (resources.files(__package__) / "templates" / f"{family}.jinja").read_text(encoding="utf-8")


def build_tokenizer(kind: TokenizerKind, template: str | None, texts: Iterable[str] = ()) -> PreTrainedTokenizerFast:
    """A tiny tokenizer as of `tiny_tokenizer`, with your own kind and template; it can encode any text.

    Raises:
        MissingExtraError: transformers or tokenizers are not installed.
    """
    try:
        from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
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
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(kind.split), "isolated"), byte_level])
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=byte_level.alphabet(), show_progress=False)
    core.train_from_iterator([QWEN3_TEMPLATE, _LINES, *texts, "\n" * 8, " " * 8 + "\n\n  \n"], trainer)
    add_tokens(core, kind)
    tokens: dict[str, Any] = {"bos_token": kind.bos, "eos_token": kind.eos or None}
    return PreTrainedTokenizerFast(tokenizer_object=core, chat_template=template, **tokens)
