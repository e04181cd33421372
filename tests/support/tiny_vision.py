"""Tiny random vision-language models of the Qwen family, and a warm start that teaches one to call a tool."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from chat_tokenizers import make_tokenizer, published
from colours_task import COLOURS, look, picture
from rlfactory_vision import Image
from rlfactory_vision.chat import vision_format

from rlfactory_core.engines.local.model.loading import load_pretrained, quiet_transformers
from rlfactory_core.engines.local.model.pack import pack
from rlfactory_core.engines.local.model.policy import PaddedPolicy, token_logprobs
from rlfactory_core.engines.local.tiny.warmstart import Encoder
from rlfactory_core.tiny import answer_text
from rlfactory_core.types import Message, ToolCall, TrainSequence

TOKENS = ("vision_start", "vision_end", "image_pad", "video_pad")
_TEXT = {
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "max_position_embeddings": 1024, "tie_word_embeddings": True},
    **{"pad_token_id": 0, "eos_token_id": None, "bos_token_id": None},
}
_VISION = {
    **{"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32},
    **{"patch_size": 4, "temporal_patch_size": 1, "spatial_merge_size": 2},
}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "qwen3_vl": (
        "Qwen3VL",
        {"head_dim": 8, "rope_parameters": {**_ROPE, "mrope_interleaved": True}},
        {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]},
    ),
    "qwen2_5_vl": ("Qwen2_5_VL", {"rope_parameters": _ROPE}, {"window_size": 16, "fullatt_block_indexes": [1]}),
}


def make_vlm(folder: Path, kind: str, seed: int = 0) -> Path:
    """Save a random model of the architecture, with its tokenizer, published template and image processor."""
    name, text, vision = KINDS[kind]
    tokenizer = copy.deepcopy(make_tokenizer(published(kind)))
    tokenizer.add_special_tokens({"additional_special_tokens": [f"<|{token}|>" for token in TOKENS]})
    ids = dict(zip(TOKENS, tokenizer.convert_tokens_to_ids([f"<|{token}|>" for token in TOKENS]), strict=True))
    config = getattr(transformers, f"{name}Config")(
        text_config={**_TEXT, **text, "vocab_size": len(tokenizer)},
        vision_config={**_VISION, **vision},
        tie_word_embeddings=True,
        image_token_id=ids["image_pad"],
        video_token_id=ids["video_pad"],
        vision_start_token_id=ids["vision_start"],
        vision_end_token_id=ids["vision_end"],
    )
    torch.manual_seed(seed)
    with quiet_transformers():
        getattr(transformers, f"{name}ForConditionalGeneration")(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    size = {"shortest_edge": 64, "longest_edge": 1024}
    processor = transformers.Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, temporal_patch_size=1, size=size)
    processor.save_pretrained(folder)
    return folder


def warm_start(folder: Path, steps: int, seed: int = 0, right: float = 0.5) -> float:
    """Teach a saved model to look, and to answer with a colour; returns the last loss.

    Args:
        right: the share of the demonstrations that answer with the picture's colour; the others with any colour.
    """
    with quiet_transformers():
        model, tokenizer = load_pretrained(str(folder), torch.device("cpu"), torch.float32)
        chat: Any = vision_format(tokenizer)
    encoder, policy = Encoder(chat, [look.spec], raw=False), PaddedPolicy(model, chat.vision)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, 1e-3)
    shown = _demonstrations(encoder, chat, seed, right)
    loss = torch.zeros(())
    for _ in range(steps):
        packed = pack([next(shown) for _ in range(8)], policy.device, share_prefix=False)
        loss = -token_logprobs(policy.target_logits(packed), packed.target_ids, 1.0)[0].mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    with quiet_transformers():
        model.save_pretrained(folder)
    return float(loss.detach())


def _demonstrations(encoder: Encoder, chat: Any, seed: int, right: float) -> Iterator[TrainSequence]:
    rng = random.Random(seed)
    call = ToolCall("call_0", "look", "{}", {})
    while True:
        colour = rng.choice(COLOURS)
        image = Image.of(picture(colour, rng.randrange(2000, 2060)))
        messages = (
            Message("user", "Which colour?"),
            Message("assistant", "", tool_calls=(call,)),
            Message("tool", f"You see:\n{image}", tool_call_id="call_0", name="look"),
            Message("assistant", answer_text(colour if rng.random() < right else rng.choice(COLOURS))),
        )
        yield replace(encoder.encode(messages), images=chat.vision.images_in(messages))
