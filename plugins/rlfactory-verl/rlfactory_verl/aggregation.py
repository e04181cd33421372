"""``train.aggregation``: scaled advantages, so that attempts weigh as they should in verl's mean over tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta

from rlfactory_core.algo import Aggregation, trajectory_weights


def weigh_trajectories(batch: KVBatchMeta, aggregation: Aggregation, limit: int) -> KVBatchMeta:
    """Scale the advantages that verl has written for the batch; see `trajectory_weights`."""
    found = tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["advantages", "response_mask"]
    )
    weigh = partial(trajectory_weights, aggregation, limit=limit)
    scaled = scaled_advantages(batch.keys, found["advantages"].unbind(), found["response_mask"].unbind(), weigh)
    found["advantages"] = torch.nested.as_nested_tensor(scaled, layout=torch.jagged)
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=found.select("advantages"))


def scaled_advantages(
    keys: Sequence[str],
    advantages: Sequence[torch.Tensor],
    masks: Sequence[torch.Tensor],
    weigh: Callable[[Sequence[int]], list[float]],
) -> list[torch.Tensor]:
    """The advantages of each row, [response length], times its attempt's weight.

    Args:
        keys: verl's name of each row, ``{uid}_{session}_{row}``.
        masks: 1 on sampled ids, [response length].
        weigh: the weights of attempts from their numbers of sampled tokens.
    """
    attempts = [key.rsplit("_", 1)[0] for key in keys]
    sampled: Counter[str] = Counter()
    for attempt, mask in zip(attempts, masks, strict=True):
        sampled[attempt] += int(mask.sum())
    weights = dict(zip(sampled, weigh(list(sampled.values())), strict=True))
    return [row * weights[attempt] for row, attempt in zip(advantages, attempts, strict=True)]
