"""Sequences as tensors: a tree of the ids that they share, and the tokens that are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlfactory_core.algo.losses.objective import NO_ID
from rlfactory_core.types import TrainSequence

SHORTEST = 16  # tokens; to share a shorter part costs more attention than it saves

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Node:
    """Tokens that several sequences share, or that one has alone, behind those of the nodes before it.

    Args:
        start: the index of its first token in the flat row.
        parent: the number of the node before it, -1 for none.
        depth: tokens of all nodes before it.
    """

    start: int
    length: int
    parent: int
    depth: int


@dataclass(frozen=True, slots=True)
class Packed:
    """One micro-batch: each token that sequences share is computed once, and the gradients of all sum up in it.

    The T targets are in the order of sequences, then of position.
    """

    flat_ids: Tensor  # [N] of all nodes
    nodes: tuple[Node, ...]
    before: Tensor  # [T] indices into ``flat_ids`` of the tokens that predict the targets
    target_ids: Tensor  # [T]
    place: Tensor  # [T] position of the target in its sequence
    advantages: Tensor  # [T] float32
    logprobs: Tensor  # [T] float32, the behaviour policy's
    sequence: Tensor  # [T] the number of the target's sequence
    images: tuple[tuple[str, ...], ...]  # of each sequence, see `TrainSequence`
    likely_ids: Tensor  # [T, K] the teacher's likeliest ids; K is 0 without a teacher
    likely_logprobs: Tensor  # [T, K] float32, the teacher's; `losses.NO_ID` where it names fewer
    old: Tensor | None = None  # [T] log-probs at the start of the training step, if the loss is relative to them
    values: Tensor | None = None  # [T] a critic's estimates before the update
    returns: Tensor | None = None  # [T] advantages + values, before the advantages are whitened


def common_prefix(sequences: Sequence[tuple[int, ...]], limit: int | None = None) -> int:
    """How many leading tokens all sequences share: at most ``limit``, and fewer than the shortest has."""
    low, high = min(sequences), max(sequences)  # in lexicographic order, these two differ first
    end = min(len(sequence) for sequence in sequences) - 1
    end = end if limit is None else min(end, limit)
    for i in range(max(end, 0)):
        if low[i] != high[i]:
            return i
    return max(end, 0)


def pack(sequences: Sequence[TrainSequence], device: torch.device, *, share_prefix: bool) -> Packed:
    """Lay sequences out for one forward pass.

    Args:
        share_prefix: False, as padded policies need it: each sequence is a node of its own, in their order.
    """
    tree = _Tree([each.ids for each in sequences], SHORTEST if share_prefix else None)
    masks = [np.flatnonzero(np.asarray(each.loss_mask)) for each in sequences]

    def of_targets(field: str, dtype: type) -> Tensor:
        all_tokens: list[NDArray[Any]] = [np.asarray(getattr(each, field), dtype) for each in sequences]
        return tensor([each[at] for each, at in zip(all_tokens, masks, strict=True)])

    def tensor(parts: Sequence[NDArray[Any]]) -> Tensor:
        return torch.from_numpy(np.concatenate(parts)).to(device)

    taught = [token for each in sequences for token in each.taught]
    shape = (sum(map(len, masks)), max((len(token.likely) for token in taught), default=0))
    likely_ids, likely_logprobs = np.zeros(shape, np.int64), np.full(shape, NO_ID, np.float32)
    for number, token in enumerate(taught):
        likely_ids[number, : len(token.likely)] = token.likely
        likely_logprobs[number, : len(token.likely)] = token.logprobs
    indices = [tree.indices(number)[at - 1] for number, at in enumerate(masks)]
    return Packed(
        flat_ids=tensor(tree.tokens),
        nodes=tuple(tree.nodes),
        before=tensor(indices),
        target_ids=of_targets("ids", np.int64),
        place=tensor(masks),
        advantages=of_targets("advantages", np.float32),
        logprobs=of_targets("logprobs", np.float32),
        sequence=tensor([np.full(len(at), number) for number, at in enumerate(masks)]),
        images=tuple(each.images for each in sequences),
        likely_ids=tensor([likely_ids]),
        likely_logprobs=tensor([likely_logprobs]),
    )


def split(sequences: Sequence[TrainSequence], tokens: int, *, share_prefix: bool) -> list[list[TrainSequence]]:
    """Micro-batches of at most so many tokens, of which at most so many are trained; a longer sequence stands alone.

    Args:
        share_prefix: sequences that begin alike stay together, and what they share counts once. False: those of
            similar length stay together, and each counts as the longest one.
    """
    found: list[list[TrainSequence]] = []
    size = trained = 0
    for each in sorted(sequences, key=lambda each: each.ids if share_prefix else (-len(each.ids),)):
        last = found[-1] if found else []
        trained += sum(each.loss_mask)
        if share_prefix:
            shared = _shared(np.asarray(last[-1].ids), np.asarray(each.ids)) if last else 0
            size += len(each.ids) - max(0, shared - SHORTEST + 1)  # at least so much of it has nodes already
        elif last:
            size = (len(last) + 1) * len(last[0].ids)
        if not last or max(size, trained) > tokens:
            found.append([])
            size, trained = len(each.ids), sum(each.loss_mask)
        found[-1].append(each)
    return found


class _Tree:
    """The nodes of some sequences, each node behind its parent, and each sequence's way through them.

    Args:
        shortest: tokens that a node of several sequences has at least; None: each sequence has one node.
    """

    def __init__(self, sequences: Sequence[tuple[int, ...]], shortest: int | None) -> None:
        self.nodes: list[Node] = []
        self.tokens: list[Ids] = []
        self._size = 0
        self._ways: list[list[int]] = [[] for _ in sequences]
        self._ids = [np.asarray(each, np.int64) for each in sequences]
        if shortest is None:
            for number, each in enumerate(self._ids):
                self._add([number], 0, len(each), -1)
        else:
            self._branch(sorted(range(len(sequences)), key=sequences.__getitem__), shortest)

    def indices(self, number: int) -> Ids:
        """Of a sequence's tokens in the flat row."""
        nodes = (self.nodes[node] for node in self._ways[number])
        return np.concatenate([np.arange(node.start, node.start + node.length) for node in nodes])

    def _branch(self, order: Sequence[int], shortest: int) -> None:
        """Add the nodes of all sequences, whose numbers stand in lexicographic order: what begins alike is adjacent."""
        shared = [_shared(self._ids[one], self._ids[other]) for one, other in pairwise(order)]
        waiting = [(0, len(order), 0, -1)]  # of ``order`` from, to; tokens that have a node already; the last of these
        while waiting:
            first, last, depth, parent = waiting.pop()
            for at in range(first, last):
                if at + 1 < last and shared[at] >= depth + shortest:
                    continue
                together = order[first : at + 1]
                end = min(shared[first:at], default=len(self._ids[together[0]]))
                node = self._add(together, depth, end, parent)
                while first <= at and len(self._ids[order[first]]) == end:
                    first += 1
                if first <= at:
                    waiting.append((first, at + 1, end, node))
                first = at + 1

    def _add(self, numbers: Sequence[int], start: int, end: int, parent: int) -> int:
        self.nodes.append(Node(self._size, end - start, parent, start))
        self.tokens.append(self._ids[numbers[0]][start:end])
        self._size += end - start
        for each in numbers:
            self._ways[each].append(len(self.nodes) - 1)
        return len(self.nodes) - 1


def _shared(one: Ids, other: Ids) -> int:
    """How many leading tokens are equal."""
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length
