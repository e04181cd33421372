"""What memory a run will need: an estimate from the model's configuration, made without loading weights.

Weights, gradients and optimizer states follow from the number of parameters (ZeRO, arXiv 1910.02054, section 3.1). What
a backward pass keeps is a sum of the widths of a layer of Llama's kind, as in arXiv 2205.05198, section 4, without
attention matrices; its factors were fitted to measured updates of three small models on a CPU. Fragmentation and what
other programs use are not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlfactory_core.engines.settings import EngineSettings

_LOGITS_BYTES = 16  # of each logit: itself, its log-softmax, and two of the entropy or of the gradient, in fp32


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Widths and counts of a causal LM."""

    layers: int
    hidden: int
    inner: int  # width of the feed-forward part that one token goes through
    queries: int  # heads times their width
    keys: int  # key-value heads times their width
    vocabulary: int


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The number of a causal LM's parameters, and its shape."""

    parameters: int
    trained: int  # those that get gradients: all, or those of the adapters
    linear: int  # those of the linear layers' matrices, but for the head
    shape: ModelShape


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One use of memory."""

    what: str
    size: int  # bytes
    formula: str


@dataclass(frozen=True, slots=True)
class MemoryPhase:
    """Parts that are held at the same time, on one device."""

    name: str
    parts: Sequence[MemoryPart]
    limit: int | None  # bytes that it may take; None: unknown

    @property
    def total(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def fits(self) -> bool | None:
        """None if the limit is unknown."""
        return None if self.limit is None else self.total <= self.limit


def largest(phases: Sequence[MemoryPhase]) -> MemoryPhase | None:
    """The phase that comes nearest to its limit, or exceeds it most; None if no limit is known."""
    limited = [phase for phase in phases if phase.limit is not None]
    return max(limited, key=lambda phase: phase.total / (phase.limit or 1), default=None)


def activations(
    shape: ModelShape, config: EngineSettings, width: int, at_once: int | None = None, logit_bytes: int = 0
) -> Sequence[MemoryPart]:
    """What the backward pass of one micro-batch keeps.

    Args:
        width: bytes of a number of the computation.
        at_once: the most logits for which the loss takes further numbers in fp32; None: all.
        logit_bytes: of each logit and its gradient, if ``at_once`` is not None.
    """
    train, longest = config.train, config.rollout.max_tokens
    update = train.prompts_per_step * train.group_size * longest // train.updates_per_step
    tokens = min(max(train.microbatch_tokens, longest), update)  # of one micro-batch, at most
    layer = (12 * shape.hidden + 4 * (shape.queries + 2 * shape.keys) + 4 * shape.inner) * width
    if train.gradient_checkpointing:
        kept, how = shape.layers * shape.hidden * width + layer, "layers x hidden size + one layer"
    else:
        kept, how = shape.layers * layer, "layers x (12 hidden + 4 (queries + keys + values) + 4 inner)"
    logits = tokens * shape.vocabulary
    size, each = logits * _LOGITS_BYTES, f"{_LOGITS_BYTES} bytes"
    if at_once is not None and logits > at_once:
        size = logits * logit_bytes + at_once * _LOGITS_BYTES
        each = f"{logit_bytes} bytes + {at_once:,} x {_LOGITS_BYTES} bytes"
    return (
        MemoryPart("activations", tokens * kept, f"{tokens:,} tokens x {how}, {width} bytes each"),
        MemoryPart("logits", size, f"at most {tokens:,} tokens x {shape.vocabulary:,} words x {each}"),
    )


def keys_and_values(shape: ModelShape, trajectories: int, tokens: int, width: int) -> MemoryPart:
    """The cache of sampling."""
    return MemoryPart(
        "keys and values",
        2 * shape.layers * shape.keys * tokens * trajectories * width,
        f"2 x {shape.layers} layers x {shape.keys} x {tokens:,} tokens x {trajectories}, {width} bytes each",
    )
