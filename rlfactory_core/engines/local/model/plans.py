"""The three layouts of tokens for a forward pass: prefill, decode, train.

What trajectories share is computed and kept once: the beginning of all prompts, and the prompt of a group. Positions
count it. Sequences are padded to each other's length only inside attention; linear layers see one row, which training
rounds up to few lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rlfactory_core.engines.local.model.kv_cache import Above, Cache
from rlfactory_core.engines.local.model.pack import Node

LIKE = 0.8  # in training, only sequences of at least this share of the longest one's length are padded together


def _tokens_first(x: Tensor) -> Tensor:
    """[1, heads, N, dim] -> [N, heads, dim], a view."""
    return x[0].transpose(0, 1)


def _causal(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
    """Plain causal attention, q and k of equal length: [B, heads, N, dim]."""
    length = q.shape[2]
    if not window or window >= length:
        return _attention(q, k, v, None, scale)
    i = torch.arange(length, device=q.device)
    return _padded_attention(q, k, v, i[:, None] - i[None], scale, window)


def _padded_attention(
    q: Tensor, keys: Tensor, values: Tensor, distance: Tensor, scale: float, window: int | None
) -> Tensor:
    """Attention of padded sequences: q [B, heads, width, dim], keys and values [B, kv_heads, K, dim].

    Args:
        distance: from each key to each query in tokens, [width, K] or [B, 1, width, K]; negative ones are masked.
    """
    mask = distance >= 0
    if window and window < distance.shape[-1]:
        mask = mask & (distance < window)
    return _attention(q, keys, values, mask, scale)


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Each kv head is given to the query heads that share it; without a mask the attention is causal."""
    if (repeat := q.shape[1] // k.shape[1]) > 1:
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale)


class DecodePlan:
    """One new token for each of the rows 0..n-1, at its own length.

    Args:
        lengths: [n] the own tokens that each row already holds.
        above: what comes before them, from the first tokens on.
    """

    def __init__(self, cache: Cache, lengths: Tensor, above: Sequence[Above] = ()) -> None:
        self.cache, self.above = cache, above
        self.lengths = lengths
        self.n = len(lengths)
        self.longest = int(lengths.max()) + 1
        self._before = sum((each.lengths for each in above), torch.zeros_like(lengths))
        self.positions = (lengths + self._before)[None]
        self._bias: dict[int | None, list[Tensor | None]] = {}  # by the window
        self._write_index: dict[int, Tensor] = {}  # by the number of kv heads

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        n, longest = self.n, self.longest
        store = self.cache.layer(layer, k[0], v[0])
        q, k, v = _tokens_first(q), _tokens_first(k), _tokens_first(v)
        heads, dim = q.shape[1:]
        kv_heads, v_dim = k.shape[1], v.shape[2]
        repeat = heads // kv_heads
        index = self._index(kv_heads)
        store.keys.view(-1, dim).index_copy_(0, index, k.reshape(n * kv_heads, dim))
        store.values.view(-1, v_dim).index_copy_(0, index, v.reshape(n * kv_heads, v_dim))

        q = (q * scale).view(n, kv_heads, repeat, dim)
        # What several rows see is one matrix product for all of them.
        shared = [each.stored(layer) for each in self.above]
        scores = [each.multiply(q, keys.transpose(2, 3)) for each, (keys, _) in zip(self.above, shared, strict=True)]
        scores.append(torch.matmul(q, store.keys[:n, :, :longest].transpose(2, 3)))
        biases = self._biases(q.dtype, window)
        scores = [each if bias is None else each + bias for each, bias in zip(scores, biases, strict=True)]
        weights = torch.softmax(torch.cat(scores, -1) if shared else scores[0], -1)
        *parts, own = weights.split([each.shape[-1] for each in scores], -1)
        out = torch.matmul(own, store.values[:n, :, :longest])
        for each, part, (_, values) in zip(self.above, parts, shared, strict=True):
            out = out + each.multiply(part, values)
        return out.reshape(1, n, heads, v_dim)

    def _index(self, kv_heads: int) -> Tensor:
        """Where the new keys go in the flattened storage."""
        if kv_heads not in self._write_index:
            row = torch.arange(self.n * kv_heads, device=self.lengths.device) * self.cache.capacity
            self._write_index[kv_heads] = row + self.lengths.repeat_interleave(kv_heads)
        return self._write_index[kv_heads]

    def _biases(self, dtype: torch.dtype, window: int | None) -> list[Tensor | None]:
        """For each part of the keys, [n, 1, 1, keys]: -inf for what a token does not see; None: it sees all."""
        if window and window >= int(self.positions.max()) + 1:
            window = None
        if window not in self._bias:
            own = self.lengths[:, None, None] - _range(self.longest, self.lengths)
            found: list[Tensor | None] = []
            for distance in (*_distances(self.above, self.positions.T), own):
                hidden = (distance < 0) | (distance >= window) if window else distance < 0
                bias = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -inf)
                found.append(bias[:, None] if bool(hidden.any()) else None)
            self._bias[window] = found
        return self._bias[window]


class PrefillPlan:
    """Appends new tokens to some rows; their tokens follow each other in one row.

    Args:
        rows: [B] of the cache, each named once.
        history: [B] the own tokens that each row already holds.
        lengths: B counts of new tokens, each at least 1.
        above: what comes before the own tokens, from the first tokens on.
    """

    def __init__(
        self, cache: Cache, rows: Tensor, history: Tensor, lengths: Sequence[int], above: Sequence[Above] = ()
    ) -> None:
        device = rows.device
        self.cache, self.rows, self.above = cache, rows, above
        self.batch, self.width = len(lengths), max(lengths)
        count = torch.tensor(lengths, device=device)
        batch_row = torch.repeat_interleave(torch.arange(self.batch, device=device), count)
        start = count.cumsum(0) - count
        column = torch.arange(len(batch_row), device=device) - start[batch_row]
        self.index = batch_row * self.width + column  # of each token in the padded [B, width]
        self.full = len(batch_row) == self.batch * self.width
        self.token_row = rows[batch_row]
        self.token_slot = history[batch_row] + column
        before = sum((each.lengths for each in above), torch.zeros_like(history))
        self.positions = (self.token_slot + before[batch_row])[None]
        self.last = count.cumsum(0) - 1  # [B] index of each row's last token
        self.longest = int((history + count).max())
        query = history[:, None] + _range(self.width, history)  # [B, width]
        own = query[:, :, None] - _range(self.longest, history)
        self.distance = torch.cat([*_distances(above, query + before[:, None]), own], -1)[:, None]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        batch, width = self.batch, self.width
        store = self.cache.layer(layer, k[0], v[0])
        q, k, v = _tokens_first(q), _tokens_first(k), _tokens_first(v)
        heads = q.shape[1]
        store.keys[self.token_row, :, self.token_slot] = k
        store.values[self.token_row, :, self.token_slot] = v
        own = store.keys[self.rows, :, : self.longest], store.values[self.rows, :, : self.longest]
        parts = [*(each.of_each(layer) for each in self.above), own]
        keys, values = (torch.cat(each, 2) for each in zip(*parts, strict=True))
        padded = q
        if not self.full:
            padded = q.new_zeros(batch * width, *q.shape[1:]).index_copy_(0, self.index, q)
        padded = padded.reshape(batch, width, heads, -1).transpose(1, 2)
        out = _padded_attention(padded, keys, values, self.distance, scale, window)
        out = out.transpose(1, 2).reshape(batch * width, heads, -1)
        return (out if self.full else out[self.index])[None]


def _range(length: int, like: Tensor) -> Tensor:
    return torch.arange(length, device=like.device)


def _distances(above: Sequence[Above], positions: Tensor) -> list[Tensor]:
    """From each key of each part to tokens at ``positions`` [B, width], as [B, width, keys]; negative: no such key."""
    found, start = [], torch.zeros_like(positions[:, :1])
    for each in above:
        key = _range(each.longest, positions)
        distance = (positions - start)[:, :, None] - key
        found.append(distance.masked_fill((key >= each.lengths[:, None])[:, None], -1))
        start = start + each.lengths[:, None]
    return found


class TrainPlan:
    """Differentiable: the tokens of all nodes of a tree in one row, each computed once.

    Args:
        padding: unused tokens at the end of the row.
    """

    def __init__(self, nodes: Sequence[Node], device: torch.device, padding: int = 0) -> None:
        nothing = torch.zeros(padding, dtype=torch.long, device=device)
        depth = [torch.arange(node.depth, node.depth + node.length, device=device) for node in nodes]
        self.positions = torch.cat([*depth, nothing])[None]
        children: dict[int, list[Node]] = {}
        for node in nodes:
            children.setdefault(node.parent, []).append(node)
        self._buckets = [
            Bucket(_before(nodes, parent, device), [own[index] for index in chosen], device)
            for parent, own in children.items()
            for chosen in _alike([node.length for node in own])
        ]
        # Gathered for all buckets at once: the backward pass of a gather goes through the whole row.
        self._queries = torch.cat([bucket.tokens for bucket in self._buckets])
        self._keys = torch.cat([part for bucket in self._buckets for part in (bucket.before, bucket.tokens)])
        real = torch.cat([bucket.real for bucket in self._buckets])
        place = real.nonzero()[:, 0][self._queries[real].argsort()]  # of each token among the buckets' rows
        self._place = torch.cat([place, nothing])

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        queries = _tokens_first(q)[self._queries].split([len(bucket.tokens) for bucket in self._buckets])
        sizes = [len(bucket.before) + len(bucket.tokens) for bucket in self._buckets]
        keys, values = (_tokens_first(x)[self._keys].split(sizes) for x in (k, v))
        found = [
            bucket.attend(*parts, scale, window)
            for bucket, parts in zip(self._buckets, zip(queries, keys, values, strict=True), strict=True)
        ]
        return (found[0] if len(found) == 1 else torch.cat(found))[self._place][None]


def _before(nodes: Sequence[Node], parent: int, device: torch.device) -> Tensor:
    """The indices of the tokens of a node and of those before it, in order."""
    parts = []
    while parent >= 0:
        node = nodes[parent]
        parts.append(torch.arange(node.start, node.start + node.length, device=device))
        parent = node.parent
    return torch.cat(parts[::-1]) if parts else torch.arange(0, device=device)


def _alike(lengths: Sequence[int]) -> list[list[int]]:
    """Indices of sequences, grouped so that padding a group to its longest costs little."""
    groups: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if lengths[index] < LIKE * longest or not groups:
            groups.append([])
            longest = lengths[index]
        groups[-1].append(index)
    return groups


class Bucket:
    """Nodes with the same parent, padded to the longest of them.

    Args:
        before: [A] the indices of the tokens that all of them see.
    """

    def __init__(self, before: Tensor, nodes: Sequence[Node], device: torch.device) -> None:
        lengths = torch.tensor([node.length for node in nodes], device=device)
        starts = torch.tensor([node.start for node in nodes], device=device)
        self.before, self.batch, self.width = before, len(nodes), int(lengths.max())
        column = torch.arange(self.width, device=device)
        self.real = (column < lengths[:, None]).view(-1)  # [B * width]
        # Padding repeats a node's last token at later positions, which none of its queries sees.
        self.tokens = (starts[:, None] + torch.minimum(column, lengths[:, None] - 1)).view(-1)
        self.distance = column[:, None] + len(before) - torch.arange(len(before) + self.width, device=device)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        """
        Args:
            q: [B * width, heads, dim] of the padded tokens.
            k, v: [A + B * width, kv_heads, dim] of the tokens before them, then of these.

        Returns:
            [B * width, heads, dim].
        """
        size = len(self.before)
        queries, keys, values = (self._by_node(x) for x in (q, k[size:], v[size:]))
        if size:
            keys, values = (self._behind(x[:size], own) for x, own in ((k, keys), (v, values)))
            out = _padded_attention(queries, keys, values, self.distance, scale, window)
        else:
            out = _causal(queries, keys, values, scale, window)
        return out.transpose(1, 2).flatten(0, 1)

    def _by_node(self, x: Tensor) -> Tensor:
        """[B * width, heads, dim] -> [B, heads, width, dim], a view."""
        return x.view(self.batch, self.width, *x.shape[1:]).transpose(1, 2)

    def _behind(self, before: Tensor, own: Tensor) -> Tensor:
        """[A, heads, dim], [B, heads, width, dim] -> [B, heads, A + width, dim]."""
        return torch.cat([before.transpose(0, 1).expand(self.batch, -1, -1, -1), own], 2)
