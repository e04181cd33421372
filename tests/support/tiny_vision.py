"""Tiny random vision-language models of the Qwen family."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
import transformers
from chat_tokenizers import make_tokenizer, published

from rlfactory_core.engines.local.model.loading import quiet_transformers

TOKENS = ("vision_start", "vision_end", "image_pad", "video_pad")
QWEN2_VL_TEMPLATE = """{%- for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}
{%- else %}{% for part in message['content'] %}
{%- if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}
{%- endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Like the one that the authors of Qwen2-VL published, for environments without trl, with which verl fails."""

_HEADS = 4
_TEXT = {
    **{"intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": _HEADS},
    **{"num_key_value_heads": 2, "max_position_embeddings": 1024, "tie_word_embeddings": True},
    **{"pad_token_id": 0, "eos_token_id": None, "bos_token_id": None},
}
_VISION = {
    **{"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2},
    **{"patch_size": 4, "temporal_patch_size": 1, "spatial_merge_size": 2},
}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "qwen3_vl": (
        "Qwen3VL",
        {"mrope_interleaved": True},
        {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]},
    ),
    "qwen2_5_vl": ("Qwen2_5_VL", {}, {"window_size": 16, "fullatt_block_indexes": [1]}),
}


def make_vlm(
    folder: Path, kind: str, seed: int = 0, head: int = 8, template: str | None = None, ends: bool = False
) -> Path:
    """Save a random model of the architecture, with its tokenizer, template and image processor.

    Args:
        head: size of the text model's attention heads; vLLM needs 32.
        template: by default the published one.
        ends: the model often ends its turn; how often depends on the image. Others of 600 tokens hardly ever do.
    """
    name, rope, vision = KINDS[kind]
    text = {
        **{"hidden_size": _HEADS * head, "head_dim": head},
        "rope_parameters": {**_ROPE, **rope, "mrope_section": [head // 4, head // 8, head // 8]},
    }
    tokenizer = copy.deepcopy(make_tokenizer(template or published(kind)))
    tokenizer.add_special_tokens({"additional_special_tokens": [f"<|{token}|>" for token in TOKENS]})
    ids = dict(zip(TOKENS, tokenizer.convert_tokens_to_ids([f"<|{token}|>" for token in TOKENS]), strict=True))
    config = getattr(transformers, f"{name}Config")(
        text_config={**_TEXT, **text, "vocab_size": len(tokenizer)},
        vision_config={**_VISION, **vision, "out_hidden_size": _HEADS * head},
        tie_word_embeddings=True,
        image_token_id=ids["image_pad"],
        video_token_id=ids["video_pad"],
        vision_start_token_id=ids["vision_start"],
        vision_end_token_id=ids["vision_end"],
    )
    torch.manual_seed(seed)
    with quiet_transformers():
        model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
        if ends:
            _make_end(model.get_input_embeddings().weight, tokenizer.convert_tokens_to_ids("<|im_end|>"))
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    size = {"shortest_edge": 64, "longest_edge": 1024}
    processor = transformers.Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, temporal_patch_size=1, size=size)
    processor.save_pretrained(folder)
    return folder


@torch.no_grad()
def _make_end(embeddings: torch.Tensor, end: int) -> None:
    """Make one token likely: a dimension that all tokens share is larger in its row, which also scores it."""
    embeddings[:, 0] = 0.1
    embeddings[end, 0] = 3.6
