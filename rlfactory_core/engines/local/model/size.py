"""The size of a model, from its ``config.json`` alone."""

from __future__ import annotations

from typing import Any

from torch import nn

from rlfactory_core.algo.settings import LoraConfig
from rlfactory_core.engines.local.model.loading import make_empty, quiet_transformers
from rlfactory_core.engines.memory import ModelShape, ModelSize


@quiet_transformers()
def model_size(model: str, lora: LoraConfig | None = None) -> ModelSize:
    """
    Args:
        model: a folder or a hub id.
        lora: the run's adapters, if it trains some.

    Raises:
        ModelError: its configuration cannot be found or read.
    """
    empty = make_empty(model)
    config = empty.config.get_text_config()
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    parameters = sum(each.numel() for each in empty.parameters())
    shape = ModelShape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        inner=_inner(config),
        queries=heads * width,
        keys=(getattr(config, "num_key_value_heads", None) or heads) * width,
        vocabulary=config.vocab_size,
    )
    return ModelSize(parameters, parameters if lora is None else _adapters(empty, lora), shape)


def _inner(config: Any) -> int:
    """The width of the feed-forward part; of a mixture of experts, those that a token uses."""
    used = getattr(config, "num_experts_per_tok", None)
    expert = getattr(config, "moe_intermediate_size", None)
    if used and expert:
        return int(used * expert)
    return int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size) * (used or 1)


def _adapters(model: Any, lora: LoraConfig) -> int:
    """Two matrices of ``rank`` columns beside each layer that is named; all linear ones are all but the head."""
    names = {name.strip() for name in lora.targets.split(",")}
    head = model.get_output_embeddings()
    return sum(
        lora.rank * (layer.in_features + layer.out_features)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
        and (layer is not head if names == {"all-linear"} else name.rpartition(".")[2] in names)
    )
