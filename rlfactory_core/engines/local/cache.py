"""Keys and values of live trajectories: one slot each, and one copy of the prompt prefix that all of them share."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(slots=True)
class LayerCache:
    """One layer. ``keys``, ``values``: [slots, kv_heads, capacity, dim]; ``prefix_*``: [kv_heads, P, dim]."""

    keys: Tensor
    values: Tensor
    prefix_keys: Tensor
    prefix_values: Tensor


class SlotCache:
    """Storage for ``slots`` trajectories of up to ``capacity`` own tokens after a shared prefix of P tokens.

    Layers are allocated at their first write, because only then their head count and width are known. Capacity grows
    by doubling; nothing is ever shrunk.
    """

    def __init__(self, slots: int, capacity: int) -> None:
        self.slots = slots
        self.capacity = capacity
        self.prefix_length = 0
        self.layers: dict[int, LayerCache] = {}

    def write_prefix(self, layer: int, k: Tensor, v: Tensor) -> None:
        """k, v: [kv_heads, P, dim]."""
        self.prefix_length = k.shape[1]
        if layer not in self.layers:
            self.layers[layer] = LayerCache(self._new(k), self._new(v), k.contiguous(), v.contiguous())
            return
        self.layers[layer].prefix_keys = k.contiguous()
        self.layers[layer].prefix_values = v.contiguous()

    def drop_prefix(self) -> None:
        """No shared prefix any more; slots are kept."""
        self.prefix_length = 0
        for layer in self.layers.values():
            layer.prefix_keys = layer.prefix_keys[:, :0]
            layer.prefix_values = layer.prefix_values[:, :0]

    def layer(self, index: int, k: Tensor, v: Tensor) -> LayerCache:
        """The layer's storage, allocated to the shape of k, v [kv_heads, N, dim] if this is its first write."""
        if index not in self.layers:
            self.layers[index] = LayerCache(self._new(k), self._new(v), k[:, :0], v[:, :0])
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
            layer.keys = self._grown(layer.keys)
            layer.values = self._grown(layer.values)

    def _new(self, like: Tensor) -> Tensor:
        return like.new_zeros(self.slots, like.shape[0], self.capacity, like.shape[2])

    def _grown(self, store: Tensor) -> Tensor:
        bigger = store.new_zeros(*store.shape[:2], self.capacity, store.shape[3])
        bigger[:, :, : store.shape[2]] = store
        return bigger
