"""What is read from a model's configuration, and the keys that transformers 5 has renamed, in both spellings.

Of rotary position embeddings it writes ``rope_parameters`` alone. transformers 4, and programs that are pinned to it,
do not read this key: without an error they compute with a base of 10,000.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = dict[str, Any]

NEW = "rope_parameters"
_PER_LAYER = {
    # model type -> the older key of the base of each type of layer; ``rope_scaling`` belongs to full attention
    "gemma3_text": {"full_attention": "rope_theta", "sliding_attention": "rope_local_base_freq"},
    "gemma3n_text": {"full_attention": "rope_theta", "sliding_attention": "rope_local_base_freq"},
    "modernbert-decoder": {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"},
    "olmo3": {"full_attention": "rope_theta"},
}
_FURTHER = {  # model type -> further older keys
    "gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
    "gpt_neox_japanese": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
}
_EXPERTS = ("qwen3_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text")  # which were ``num_experts``
_STRICT = {  # model type -> the only keys that its ``rope_scaling`` may have
    "olmo": ("type", "factor"),
    "olmo2": ("type", "factor"),
    "phi3": ("type", "short_factor", "long_factor"),
    "phi4_multimodal": ("type", "short_factor", "long_factor"),
}
_APART = ("rope_theta", "partial_rotary_factor")  # the older spelling has them beside ``rope_scaling``


def with_older_keys(config: Mapping[str, Any]) -> Config:
    """The configuration with the older keys beside each ``rope_parameters``, also in those that it contains."""
    both: Config = {
        key: with_older_keys(value) if key.endswith("_config") and isinstance(value, Mapping) else value
        for key, value in config.items()
    }
    new = both.get(NEW)
    if isinstance(new, Mapping):
        for key, value in _older(both, new).items():
            # A scaling that is there in the older spelling may have keys that transformers 5 does not write.
            if key != "rope_scaling" or both.get(key) is None:
                both[key] = value
    if both.get("model_type") in _EXPERTS and "num_local_experts" in both:
        both["num_experts"] = both["num_local_experts"]
    return both


def _older(config: Mapping[str, Any], new: Mapping[str, Any]) -> Config:
    kind = config.get("model_type", "")
    if any(isinstance(value, Mapping) for value in new.values()):
        names = _PER_LAYER.get(kind, {})  # other models with several bases are newer than transformers 4
        own = {
            name: new[layer]["rope_theta"] for layer, name in names.items() if "rope_theta" in (new.get(layer) or {})
        }
        return own | (_scaling(config, new.get("full_attention") or {}) if names else {})
    own = {key: new[key] for key in _APART if new.get(key) is not None}
    own |= {name: own[key] for key, name in _FURTHER.get(kind, {}).items() if key in own}
    return own | _scaling(config, new)


def _scaling(config: Mapping[str, Any], new: Mapping[str, Any]) -> Config:
    scaling = {key: value for key, value in new.items() if key not in _APART and value is not None}
    if scaling in ({}, {"rope_type": "default"}):
        return {"rope_scaling": None}  # and not the default of the model's class
    if config.get("original_max_position_embeddings") is not None:  # Phi's configuration has it outside
        scaling.pop("original_max_position_embeddings", None)
    strict = _STRICT.get(config.get("model_type", ""))
    if strict:
        scaling = {"type": scaling.get("rope_type"), **scaling}
        scaling = {key: scaling[key] for key in strict if key in scaling}
    return {"rope_scaling": scaling}


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
