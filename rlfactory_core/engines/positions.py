"""How long a text a model was made for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def known_positions(config: Any) -> int | None:
    """The most positions that the model of a configuration of transformers was made for; None: it has no limit.

    Where its RoPE is scaled, by YaRN for example, the configuration may still have the number of before.
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    most = getattr(text, "max_position_embeddings", None)
    if not isinstance(most, int) or most < 1:
        return None
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    kinds = [rope, *rope.values()] if isinstance(rope, Mapping) else []  # some models have one for each kind of layer
    return max([most, *(_scaled(kind, most) for kind in kinds if isinstance(kind, Mapping))])


def _scaled(rope: Mapping[str, Any], most: int) -> int:
    factor = rope.get("factor")
    begun = rope.get("original_max_position_embeddings", most)
    return int(factor * begun) if isinstance(factor, (int, float)) and isinstance(begun, int) else 0
