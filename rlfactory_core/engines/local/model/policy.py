"""A Hugging Face causal LM as the policy, for sampling and learning: ragged where that works, else padded.

The ragged policy registers an attention function with transformers and calls the model with ``input_ids`` [1, N],
``position_ids`` [1, N] and ``plan=…``: all tokens of all trajectories in one row, without padding. Extra keyword
arguments travel through the model to the attention function, and the plan knows which query may see which key. Nothing
is registered for masks, so transformers builds none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from transformers import AttentionInterface

from rlfactory_core.engines.local.model.half import compute_in_bfloat16, computes_in_bfloat16, precision
from rlfactory_core.engines.local.model.onednn import padding_of, speed_up_linears
from rlfactory_core.engines.local.model.pack import Packed
from rlfactory_core.engines.local.model.plans import TrainPlan
from rlfactory_core.protocols import Vision

IMPOSSIBLE = -1e9  # a logit; an infinite one would make the entropy NaN
ATTENTION = "rlfactory_ragged"  # the name of our attention function in transformers


class Plan(Protocol):
    """Which token attends to which in one forward pass."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        """q [1, heads, N, dim], k and v [1, kv_heads, N, dim] -> [1, N, heads, dim]; window in tokens, or None."""


def ragged_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    plan: Plan | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers calls this in every layer.

    Raises:
        NotImplementedError: the model needs what plans lack; the padded forward is used instead.
    """
    if plan is None:
        raise NotImplementedError("the model does not pass keyword arguments on to its attention")
    if dropout or attention_mask is not None:
        raise NotImplementedError("attention dropout or a mask of the model's own")
    if kwargs.get("softcap") or kwargs.get("s_aux") is not None:
        raise NotImplementedError("attention soft-capping or sinks")
    if torch.is_autocast_enabled("cpu"):  # rotations make float32 of what linear layers give
        query, key, value = query.bfloat16(), key.bfloat16(), value.bfloat16()
    scale = scaling if scaling is not None else float(query.shape[-1]) ** -0.5
    return plan.attend(int(module.layer_idx), query, key, value, scale, sliding_window), None  # type: ignore[arg-type]


class Policy(ABC):
    """``model`` is the trainable module; ``kind`` is ``ragged`` or ``padded``."""

    kind: str

    def __init__(self, model: Any) -> None:
        if computes_in_bfloat16(model):
            compute_in_bfloat16(model)  # also what is new in a copy, such as a critic's head
        else:
            speed_up_linears(model)
        self.model = model

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    def of(self, model: Any) -> Self:
        """The same kind of policy for a model of the same architecture."""
        return type(self)(model)

    @abstractmethod
    def target_logits(self, packed: Packed) -> Tensor:
        """Logits that predict each target, [T, vocabulary], differentiable."""


class RaggedPolicy(Policy):
    """No padding, and the shared prefix is computed once."""

    kind = "ragged"

    def __init__(self, model: Any) -> None:
        AttentionInterface.register(ATTENTION, ragged_attention)
        model.set_attn_implementation(ATTENTION)
        super().__init__(model)

    def forward(self, ids: Tensor, positions: Tensor, plan: Plan, keep: Tensor) -> Tensor:
        """ids [N], positions [1, N] -> logits [len(keep), vocabulary] at the kept positions."""
        with precision(self.model):
            output = self.model(
                input_ids=ids[None], position_ids=positions, use_cache=False, plan=plan, logits_to_keep=keep
            )
        logits: Tensor = output.logits[0]
        return logits

    def target_logits(self, packed: Packed) -> Tensor:
        tokens = packed.flat_ids
        padding = padding_of(len(tokens))
        plan = TrainPlan(packed.nodes, tokens.device, padding)
        return self.forward(torch.cat([tokens, tokens.new_zeros(padding)]), plan.positions, plan, packed.before)


class PaddedPolicy(Policy):
    """Any model that transformers runs, with padding: for models whose ragged forward fails the probe.

    Args:
        vision: the chat format's, for a model that sees images.
    """

    kind = "padded"

    def __init__(self, model: Any, vision: Vision | None = None) -> None:
        super().__init__(model)
        self.vision = vision

    def of(self, model: Any) -> Self:
        return type(self)(model, self.vision)

    def inputs(self, ids: Tensor, images: Sequence[Sequence[str]]) -> dict[str, Any]:
        """The inputs of the forward pass for the images of the rows; see `Vision.inputs`."""
        found = {} if self.vision is None else self.vision.inputs(ids, images)
        return {name: tensor.to(self.device) for name, tensor in found.items()}

    def target_logits(self, packed: Packed) -> Tensor:
        lengths = [node.length for node in packed.nodes]
        ids = packed.flat_ids.new_zeros(len(lengths), max(lengths))
        mask = torch.zeros_like(ids)
        for row, own in enumerate(packed.flat_ids.split(lengths)):
            ids[row, : len(own)] = own
            mask[row, : len(own)] = 1
        images = self.inputs(ids, packed.images)
        with precision(self.model):
            logits = self.model(input_ids=ids, attention_mask=mask, use_cache=False, **images).logits
        picked: Tensor = logits[packed.sequence, packed.place - 1]
        if self.vision is None or picked.shape[1] == 1:  # of a critic
            return picked
        reserved = torch.tensor(self.vision.reserved, device=picked.device)
        return picked.index_fill(1, reserved, IMPOSSIBLE)
