"""Keys and values that are kept between forward passes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(slots=True)
class Layer:
    """One layer of a cache; ``keys``, ``values``: [rows, kv_heads, capacity, dim]."""

    keys: Tensor
    values: Tensor


class Cache:
    """Keys and values of ``rows`` sequences of up to ``capacity`` tokens.

    A layer is allocated at its first write, when its head count and width become known. Capacity grows by doubling;
    nothing shrinks.
    """

    def __init__(self, rows: int, capacity: int) -> None:
        self.rows = rows
        self.capacity = capacity
        self.layers: dict[int, Layer] = {}

    def layer(self, index: int, k: Tensor, v: Tensor) -> Layer:
        """The layer's storage, allocated to the shape of k, v [kv_heads, N, dim] if this is its first write."""
        if index not in self.layers:
            keys, values = (x.new_zeros(self.rows, x.shape[0], self.capacity, x.shape[2]) for x in (k, v))
            self.layers[index] = Layer(keys, values)
        return self.layers[index]

    def swap(self, rows: Tensor, sources: Tensor, length: int) -> None:
        """Row ``rows[i]`` gets the first ``length`` tokens of ``sources[i]``; sources are a permutation of rows."""
        for layer in self.layers.values():
            for store in (layer.keys, layer.values):
                store[rows, :, :length] = store[sources, :, :length]

    def reserve(self, length: int, rows: int = 0) -> None:
        """Make room for ``length`` tokens a row, and for ``rows`` rows."""
        if length <= self.capacity and rows <= self.rows:
            return
        while self.capacity < length:
            self.capacity *= 2
        self.rows = max(self.rows, rows)
        for layer in self.layers.values():
            more = (0, 0, 0, self.capacity - layer.keys.shape[2], 0, 0, 0, self.rows - layer.keys.shape[0])
            layer.keys, layer.values = pad(layer.keys, more), pad(layer.values, more)


class Above:
    """Tokens of another cache that come before the own ones of some trajectories, and are kept once for all of them.

    Args:
        rows: [B] of that cache, one for each trajectory.
        lengths: [B] tokens of these rows; 0 for a trajectory with nothing before its own tokens.
    """

    def __init__(self, cache: Cache, rows: Tensor, lengths: Tensor) -> None:
        self.cache, self.rows, self.lengths = cache, rows, lengths
        self.longest = int(lengths.max())
        having = lengths > 0
        used, of_node = torch.unique(rows[having], return_inverse=True)
        first, last = int(used[0]), int(used[-1])
        self._used: slice | Tensor = used
        if last - first < 2 * len(used):  # a view of all rows between them is cheaper than a copy of those in use
            self._used, of_node = slice(first, last + 1), rows[having] - first
        self._count = count = last + 1 - first if isinstance(self._used, slice) else len(used)
        # A trajectory with nothing before its own tokens gives these keys no weight, so it may stand in any group.
        every = torch.arange(len(rows), device=rows.device)
        group = every % count
        group[having] = of_node
        order, sizes = group.argsort(stable=True), torch.bincount(group, minlength=count)
        self._width = int(sizes.max())
        rank = torch.empty_like(order)
        rank[order] = every - (sizes.cumsum(0) - sizes)[group[order]]
        self._group, self._rank = group, rank
        members = torch.zeros(count * self._width, dtype=torch.long, device=rows.device)
        self._members = members.index_copy_(0, group * self._width + rank, every).view(count, 1, self._width)
        self._indices: dict[int, tuple[Tensor, Tensor]] = {}  # by the number of kv heads

    def of(self, chosen: Tensor) -> Above:
        """The same for some of the trajectories, at least one of which has something before its own tokens."""
        return Above(self.cache, self.rows[chosen], self.lengths[chosen])

    def of_each(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of each trajectory, [B, kv_heads, longest, dim]."""
        if self._count == 1:
            keys, values = self.stored(layer)
            return keys.expand(len(self.rows), -1, -1, -1), values.expand(len(self.rows), -1, -1, -1)
        store = self.cache.layers[layer]
        return store.keys[self.rows, :, : self.longest], store.values[self.rows, :, : self.longest]

    def stored(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the G rows that are used, [G, kv_heads, longest, dim]."""
        store = self.cache.layers[layer]
        return store.keys[self._used, :, : self.longest], store.values[self._used, :, : self.longest]

    def multiply(self, x: Tensor, stored: Tensor) -> Tensor:
        """Products of the trajectories' x [B, kv_heads, repeat, n] and their rows in ``stored`` [G, kv_heads, n, m].

        Those that have the same row are one matrix product, padded to the largest group.
        """
        batch, kv_heads, repeat, width = x.shape
        together, apart = self._index(kv_heads)
        rows = x.reshape(batch * kv_heads, -1).index_select(0, together)
        found = torch.matmul(rows.view(self._count, kv_heads, self._width * repeat, width), stored)
        return found.view(len(together), -1).index_select(0, apart).view(batch, kv_heads, repeat, -1)

    def _index(self, kv_heads: int) -> tuple[Tensor, Tensor]:
        """From [B, kv_heads] to [G, kv_heads, trajectories of a group], and back; both flattened."""
        if kv_heads not in self._indices:
            heads = torch.arange(kv_heads, device=self.rows.device)
            together = self._members * kv_heads + heads[:, None]
            apart = (self._group[:, None] * kv_heads + heads) * self._width + self._rank[:, None]
            self._indices[kv_heads] = together.flatten(), apart.flatten()
        return self._indices[kv_heads]
