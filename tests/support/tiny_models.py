"""Tiny random models of many families, for the engine's tests and the probe's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers

from rlfactory_core.types import TrainSequence

VOCABULARY = 300
WINDOW = 48
BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "eos_token_id": None,
    "bos_token_id": None,
}
_NO_IDS = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
_PLAIN = {key: value for key, value in BASE.items() if key != "num_key_value_heads"}

RAGGED: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("Qwen3Config", {**BASE, "head_dim": 16, "tie_word_embeddings": True}),
    "llama": ("LlamaConfig", BASE),
    "qwen2": ("Qwen2Config", BASE),
    "mistral": ("MistralConfig", {**BASE, "sliding_window": WINDOW}),
    "gemma3": (
        "Gemma3TextConfig",
        {**BASE, "head_dim": 16, "sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "olmo2": ("Olmo2Config", BASE),
    "phi3": ("Phi3Config", BASE),
    "smollm3": ("SmolLM3Config", BASE),
    "granite": ("GraniteConfig", BASE),
    "gpt_neox": ("GPTNeoXConfig", _PLAIN),
    "qwen3_moe": (
        "Qwen3MoeConfig",
        {**BASE, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    ),
    "gpt2": (
        "GPT2Config",
        {
            **_NO_IDS,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
            **{"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256},
        },
    ),
    "opt": (
        "OPTConfig",
        {
            **_NO_IDS,
            **{"vocab_size": VOCABULARY, "hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "dropout": 0.0},
            **{"num_attention_heads": 4, "max_position_embeddings": 256, "word_embed_proj_dim": 32},
        },
    ),
}
"""Families that run without padding: name -> config class and its arguments."""

PADDED: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": ("Gemma2Config", {**BASE, "head_dim": 16}),
    "gpt_oss": (
        "GptOssConfig",
        {
            **{**BASE, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": WINDOW},
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
    "bloom": (
        "BloomConfig",
        {
            **{"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4, "pad_token_id": 0},
            **{"hidden_dropout": 0.0, "attention_dropout": 0.0},
        },
    ),
    "mamba": (
        "MambaConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "pad_token_id": 0},
    ),
    "lfm2": ("Lfm2Config", {**BASE, "layer_types": ["conv", "full_attention"]}),
}
"""Families that the probe has to refuse: soft caps, sinks, ALiBi, state spaces, convolutions."""


def make_model(name: str, seed: int = 0) -> Any:
    """Eager attention, fp32, and weights large enough that a wrong token shows."""
    class_name, arguments = {**RAGGED, **PADDED}[name]
    config = getattr(transformers, class_name)(**arguments)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
            else:
                parameter.mul_(5.0)
    return model


def random_ids(count: int, seed: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(1, VOCABULARY, (count,), generator=generator).tolist())


def train_sequence(ids: Sequence[int], mask: Sequence[int], seed: int = 0) -> TrainSequence:
    """With random advantages on the masked tokens."""
    generator = torch.Generator().manual_seed(seed)
    weights = (torch.randn(len(ids), generator=generator) * torch.tensor(mask)).tolist()
    return TrainSequence(tuple(ids), tuple(mask), tuple(weights), (0.0,) * len(ids))


def eager_logprobs(model: Any, ids: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
    """Log-probs of ids[1:], [len(ids) - 1], by one plain forward pass of the model without any of ours."""
    logits = model(torch.tensor([list(ids)]), use_cache=False).logits[0, :-1].float() / temperature
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(list(ids[1:]))[:, None])[:, 0]
