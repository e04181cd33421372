"""Sequences as tensors: flat ids, and the positions of the tokens that are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlfactory_core.types import TrainSequence


@dataclass(frozen=True, slots=True)
class Packed:
    """One micro-batch. T targets in order of sequences, then of position.

    ``own`` are the sequences' ids after the shared ``prefix``; concatenated, they are ``flat_ids`` [N]. ``targets``
    [T] are indices into ``flat_ids``; the other [T] tensors go with them.
    """

    prefix: Tensor  # [P]
    flat_ids: Tensor  # [N]
    lengths: tuple[int, ...]  # own tokens of each sequence, N in all
    targets: Tensor  # [T]
    first: Tensor  # [T] bool: the target is its sequence's first own token, predicted by the prefix
    advantages: Tensor  # [T] float32
    logprobs: Tensor  # [T] float32, the behaviour policy's
    sequence: Tensor  # [T] the number of the target's sequence
    images: tuple[tuple[str, ...], ...]  # of each sequence, see `TrainSequence`
    old: Tensor | None = None  # [T] log-probs at the start of the training step, if the loss is relative to them
    values: Tensor | None = None  # [T] a critic's estimates before the update
    returns: Tensor | None = None  # [T] advantages + values, before the advantages are whitened

    @property
    def target_ids(self) -> Tensor:
        return self.flat_ids[self.targets]


def common_prefix(sequences: Sequence[tuple[int, ...]], limit: int | None = None) -> int:
    """How many leading tokens all sequences share: at most ``limit``, and fewer than the shortest has."""
    low, high = min(sequences), max(sequences)  # in lexicographic order, these two differ first
    end = min(len(sequence) for sequence in sequences) - 1
    end = end if limit is None else min(end, limit)
    for i in range(max(end, 0)):
        if low[i] != high[i]:
            return i
    return max(end, 0)


def pack(sequences: Sequence[TrainSequence], device: torch.device, *, share_prefix: bool = True) -> Packed:
    """Lay sequences out for one forward pass; the shared prefix never includes tokens that are trained on."""
    prefix = 0
    if share_prefix and len(sequences) > 1:
        limit = min(sequence.loss_mask.index(1) if 1 in sequence.loss_mask else 0 for sequence in sequences)
        prefix = common_prefix([sequence.ids for sequence in sequences], limit)
    lengths = tuple(len(sequence.ids) - prefix for sequence in sequences)

    def flat(field: str, dtype: type) -> NDArray[np.generic]:
        return np.concatenate([np.asarray(getattr(sequence, field)[prefix:], dtype) for sequence in sequences])

    targets = np.flatnonzero(flat("loss_mask", np.int64))
    starts = np.zeros(len(lengths), np.int64)
    np.cumsum(lengths[:-1], out=starts[1:])

    def tensor(array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(device)

    numbers = np.repeat(np.arange(len(lengths)), lengths)
    return Packed(
        prefix=torch.tensor(sequences[0].ids[:prefix], dtype=torch.long, device=device),
        flat_ids=tensor(flat("ids", np.int64)),
        lengths=lengths,
        targets=tensor(targets),
        first=tensor(np.isin(targets, starts)),
        advantages=tensor(flat("advantages", np.float32)[targets]),
        logprobs=tensor(flat("logprobs", np.float32)[targets]),
        sequence=tensor(numbers[targets]),
        images=tuple(sequence.images for sequence in sequences),
    )
