"""The cache of keys and values, and the four layouts of tokens for a forward pass: prefix, prefill, decode, train.

A trajectory is the shared prefix (P tokens, computed once) and its own tokens. Positions count both. Sequences are
padded to each other's length only inside attention; linear layers see one row, which training rounds up to few lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

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


@dataclass(slots=True)
class LayerCache:
    """One layer. ``keys``, ``values``: [slots, kv_heads, capacity, dim]; ``prefix_*``: [kv_heads, P, dim]."""

    keys: Tensor
    values: Tensor
    prefix_keys: Tensor
    prefix_values: Tensor


class SlotCache:
    """Storage for ``slots`` trajectories of up to ``capacity`` own tokens after a shared prefix of P tokens.

    A layer is allocated at its first write, when its head count and width become known. Capacity grows by doubling and
    never shrinks.
    """

    def __init__(self, slots: int, capacity: int) -> None:
        self.slots = slots
        self.capacity = capacity
        self.prefix_length = 0
        self.layers: dict[int, LayerCache] = {}

    def write_prefix(self, layer: int, k: Tensor, v: Tensor) -> None:
        """k, v: [kv_heads, P, dim]."""
        self.prefix_length = k.shape[1]
        store = self.layer(layer, k, v)
        store.prefix_keys, store.prefix_values = k.contiguous(), v.contiguous()

    def drop_prefix(self) -> None:
        """No shared prefix any more; slots are kept."""
        self.prefix_length = 0
        for layer in self.layers.values():
            layer.prefix_keys, layer.prefix_values = layer.prefix_keys[:, :0], layer.prefix_values[:, :0]

    def layer(self, index: int, k: Tensor, v: Tensor) -> LayerCache:
        """The layer's storage, allocated to the shape of k, v [kv_heads, N, dim] if this is its first write."""
        if index not in self.layers:
            keys, values = (x.new_zeros(self.slots, x.shape[0], self.capacity, x.shape[2]) for x in (k, v))
            self.layers[index] = LayerCache(keys, values, k[:, :0], v[:, :0])
        return self.layers[index]

    def swap(self, slots: Tensor, sources: Tensor, length: int) -> None:
        """Slot ``slots[i]`` gets the first ``length`` tokens of ``sources[i]``; sources are a permutation of slots."""
        for layer in self.layers.values():
            for store in (layer.keys, layer.values):
                store[slots, :, :length] = store[sources, :, :length]

    def reserve(self, length: int) -> None:
        """Make room for ``length`` own tokens a slot."""
        if length <= self.capacity:
            return
        while self.capacity < length:
            self.capacity *= 2
        for layer in self.layers.values():
            more = (0, 0, 0, self.capacity - layer.keys.shape[2])
            layer.keys, layer.values = pad(layer.keys, more), pad(layer.values, more)


def _after_prefix(prefix: Tensor, own: Tensor) -> Tensor:
    """[kv_heads, P, dim], [B, kv_heads, N, dim] -> [B, kv_heads, P + N, dim]."""
    return torch.cat([prefix[None].expand(len(own), -1, -1, -1), own], 2) if prefix.shape[1] else own


class PrefixPlan:
    """Computes the shared prefix and stores its keys and values."""

    def __init__(self, cache: SlotCache) -> None:
        self.cache = cache

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        self.cache.write_prefix(layer, k[0], v[0])
        return _causal(q, k, v, scale, window).transpose(1, 2)


class DecodePlan:
    """One new token for each of the slots 0..n-1, at its own length.

    Args:
        lengths: [n] the own tokens that each slot already holds.
    """

    def __init__(self, cache: SlotCache, lengths: Tensor) -> None:
        self.cache = cache
        self.lengths = lengths
        self.n = len(lengths)
        self.prefix = cache.prefix_length
        self.longest = int(lengths.max()) + 1
        self.positions = (lengths + self.prefix)[None]
        self._bias: dict[int | None, tuple[Tensor, Tensor | None]] = {}  # by the window
        self._write_index: dict[int, Tensor] = {}  # by the number of kv heads

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        n, prefix, longest = self.n, self.prefix, self.longest
        store = self.cache.layer(layer, k[0], v[0])
        q, k, v = _tokens_first(q), _tokens_first(k), _tokens_first(v)
        heads, dim = q.shape[1:]
        kv_heads, v_dim = k.shape[1], v.shape[2]
        repeat = heads // kv_heads
        index = self._index(kv_heads)
        store.keys.view(-1, dim).index_copy_(0, index, k.reshape(n * kv_heads, dim))
        store.values.view(-1, v_dim).index_copy_(0, index, v.reshape(n * kv_heads, v_dim))

        q = (q * scale).view(n, kv_heads, repeat, dim)
        keys, values = store.keys[:n, :, :longest], store.values[:n, :, :longest]
        own_bias, prefix_bias = self._biases(q.dtype, window)
        own = torch.matmul(q, keys.transpose(2, 3)) + own_bias
        if not prefix:
            return torch.matmul(torch.softmax(own, -1), values).reshape(1, n, heads, v_dim)
        # The prefix is the same for all rows: one matrix product per kv head instead of one per row.
        flat = q.transpose(0, 1).reshape(kv_heads, n * repeat, dim)
        shared = torch.bmm(flat, store.prefix_keys.transpose(1, 2)).view(kv_heads, n, repeat, prefix).transpose(0, 1)
        if prefix_bias is not None:
            shared = shared + prefix_bias
        weights = torch.softmax(torch.cat([shared, own], -1), -1)
        flat = weights[..., :prefix].transpose(0, 1).reshape(kv_heads, n * repeat, prefix)
        out = torch.matmul(weights[..., prefix:], values)
        out = out + torch.bmm(flat, store.prefix_values).view(kv_heads, n, repeat, v_dim).transpose(0, 1)
        return out.reshape(1, n, heads, v_dim)

    def _index(self, kv_heads: int) -> Tensor:
        """Where the new keys go in the flattened storage."""
        if kv_heads not in self._write_index:
            row = torch.arange(self.n * kv_heads, device=self.lengths.device) * self.cache.capacity
            self._write_index[kv_heads] = row + self.lengths.repeat_interleave(kv_heads)
        return self._write_index[kv_heads]

    def _biases(self, dtype: torch.dtype, window: int | None) -> tuple[Tensor, Tensor | None]:
        """Of the own keys [n, 1, 1, longest] and the prefix's [n, 1, 1, P]: -inf for what a token does not see."""
        if window and window >= self.prefix + self.longest:
            window = None
        if window not in self._bias:
            first = 0 if window else self.prefix  # all see the whole prefix if there is no window
            key = torch.arange(first, self.prefix + self.longest, device=self.lengths.device)
            distance = (self.lengths[:, None] + self.prefix - key)[:, None, None]
            hidden = (distance < 0) | (distance >= window) if window else distance < 0
            bias = torch.zeros(hidden.shape, dtype=dtype, device=key.device).masked_fill_(hidden, -inf)
            self._bias[window] = bias[..., -self.longest :], bias[..., : self.prefix] if window else None
        return self._bias[window]


class PrefillPlan:
    """Appends new tokens to some slots; their tokens follow each other in one row.

    Args:
        rows: [B] slots, each named once.
        history: [B] the own tokens that each slot already holds.
        lengths: B counts of new tokens, each at least 1.
    """

    def __init__(self, cache: SlotCache, rows: Tensor, history: Tensor, lengths: Sequence[int]) -> None:
        device = rows.device
        self.cache, self.rows = cache, rows
        self.prefix = cache.prefix_length
        self.batch, self.width = len(lengths), max(lengths)
        count = torch.tensor(lengths, device=device)
        batch_row = torch.repeat_interleave(torch.arange(self.batch, device=device), count)
        start = count.cumsum(0) - count
        column = torch.arange(len(batch_row), device=device) - start[batch_row]
        self.index = batch_row * self.width + column  # of each token in the padded [B, width]
        self.full = len(batch_row) == self.batch * self.width
        self.token_row = rows[batch_row]
        self.token_slot = history[batch_row] + column
        self.positions = (self.token_slot + self.prefix)[None]
        self.last = count.cumsum(0) - 1  # [B] index of each row's last token
        self.longest = int((history + count).max())
        key = torch.arange(self.prefix + self.longest, device=device)[None, None]
        query = (history[:, None] + torch.arange(self.width, device=device)[None] + self.prefix)[:, :, None]
        self.distance = (query - key)[:, None]  # [B, 1, width, keys]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        batch, width = self.batch, self.width
        store = self.cache.layer(layer, k[0], v[0])
        q, k, v = _tokens_first(q), _tokens_first(k), _tokens_first(v)
        heads = q.shape[1]
        store.keys[self.token_row, :, self.token_slot] = k
        store.values[self.token_row, :, self.token_slot] = v
        keys = _after_prefix(store.prefix_keys, store.keys[self.rows, :, : self.longest])
        values = _after_prefix(store.prefix_values, store.values[self.rows, :, : self.longest])
        padded = q
        if not self.full:
            padded = q.new_zeros(batch * width, *q.shape[1:]).index_copy_(0, self.index, q)
        padded = padded.reshape(batch, width, heads, -1).transpose(1, 2)
        out = _padded_attention(padded, keys, values, self.distance, scale, window)
        out = out.transpose(1, 2).reshape(batch * width, heads, -1)
        return (out if self.full else out[self.index])[None]


class TrainPlan:
    """Differentiable: ``[prefix | sequence 0 | sequence 1 | …]`` in one row, the prefix computed once.

    Args:
        prefix: P tokens that all sequences share, 0 for none.
        lengths: own tokens of each sequence, after the prefix.
        padding: unused tokens at the end of the row.
    """

    def __init__(self, prefix: int, lengths: Sequence[int], device: torch.device, padding: int = 0) -> None:
        self.prefix = prefix
        count = torch.tensor(lengths, device=device)
        start = count.cumsum(0) - count
        row = torch.repeat_interleave(torch.arange(len(lengths), device=device), count)
        column = torch.arange(len(row), device=device) - start[row]
        nothing = torch.zeros(padding, dtype=torch.long, device=device)
        self.positions = torch.cat([torch.arange(prefix, device=device), column + prefix, nothing])[None]
        self._buckets = [
            Bucket(prefix, start[rows] + prefix, count[rows])
            for rows in (torch.tensor(chosen, device=device) for chosen in _alike(lengths))
        ]
        tokens = torch.cat([bucket.tokens for bucket in self._buckets])
        padded = torch.cat([bucket.real for bucket in self._buckets])
        place = padded.nonzero()[:, 0][tokens[padded].argsort()]  # of each own token among the buckets' rows
        self._place = torch.cat([place, nothing])

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        found = [bucket.attend(q, k, v, scale, window) for bucket in self._buckets]
        out = (found[0] if len(found) == 1 else torch.cat(found))[self._place]
        if self.prefix:
            q, k, v = (x[:, :, : self.prefix] for x in (q, k, v))
            out = torch.cat([_tokens_first(_causal(q, k, v, scale, window)), out])
        return out[None]


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
    """Some sequences, padded to the longest of them.

    Args:
        starts: [B] indices of their first own tokens in the whole row.
        lengths: [B] of their own tokens.
    """

    def __init__(self, prefix: int, starts: Tensor, lengths: Tensor) -> None:
        self.prefix, self.batch, self.width = prefix, len(lengths), int(lengths.max())
        column = torch.arange(self.width, device=lengths.device)
        self.real = (column < lengths[:, None]).view(-1)  # [B * width]
        # Padding repeats a sequence's last token at later positions, which none of its queries sees.
        self.tokens = (starts[:, None] + torch.minimum(column, lengths[:, None] - 1)).view(-1)
        self.distance = column[:, None] + prefix - torch.arange(prefix + self.width, device=lengths.device)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        """The whole row's q, k, v -> [B * width, heads, dim]."""
        if not self.prefix:
            out = _causal(self._own(q), self._own(k), self._own(v), scale, window)
            return out.transpose(1, 2).flatten(0, 1)
        keys = _after_prefix(k[0, :, : self.prefix], self._own(k))
        values = _after_prefix(v[0, :, : self.prefix], self._own(v))
        out = _padded_attention(self._own(q), keys, values, self.distance, scale, window)
        return out.transpose(1, 2).flatten(0, 1)

    def _own(self, x: Tensor) -> Tensor:
        """[1, H, P+N, dim] -> the sequences' own tokens as [B, H, width, dim]."""
        own = _tokens_first(x)[self.tokens]
        return own.view(self.batch, self.width, *own.shape[1:]).transpose(1, 2)
