"""Data parallelism over CPU processes: the few collectives that training needs, through torch.distributed (gloo).

Every process runs the same program on its share of the prompts; only rank 0 writes files and shows progress. With one
process every collective is the identity, and torch.distributed is not initialised.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from rlfactory_core.engines.base import Processes

T = TypeVar("T")
BUCKET = 2**22  # numbers of gradients that are summed at a time


class Workers:
    """This process among its peers.

    Args:
        rank, size: this process's number and how many there are.
        rendezvous: the file through which the processes find each other; not needed for size 1. It has to be in a
            folder that only this user may enter: who can write to it can join.
    """

    def __init__(self, rank: int = 0, size: int = 1, rendezvous: Path = Path()) -> None:
        self.rank, self.size = rank, size
        if size > 1:
            loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "")
            if loopback:  # gloo would listen on the address of the machine's name
                os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
            dist.init_process_group("gloo", init_method=rendezvous.as_uri(), rank=rank, world_size=size)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """Every size-th item, beginning with this rank's."""
        return list(items[self.rank :: self.size])

    def sum(self, values: Sequence[float]) -> list[float]:
        """Elementwise over all processes, in double precision."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return [float(value) for value in total]

    def sum_by_name(self, values: Mapping[str, float]) -> dict[str, float]:
        """The sum of each value over all processes, of which one may lack it."""
        if self.size == 1:
            return dict(values)
        everywhere: list[Mapping[str, float]] = [{}] * self.size
        dist.all_gather_object(everywhere, dict(values))
        names = dict.fromkeys(name for each in everywhere for name in each)
        return {name: sum(each.get(name, 0.0) for each in everywhere) for name in names}

    def reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients over all processes; a missing gradient counts as zero.

        They are copied for that, a few at a time.
        """
        if self.size == 1:
            return
        for bucket in _buckets(p for p in parameters if p.requires_grad):
            grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in bucket]
            flat = torch.cat([each.flatten().float() for each in grads])
            dist.all_reduce(flat)
            for p, summed in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                p.grad = summed.view_as(p).to(p.dtype)

    def gather(self, item: T) -> list[T]:
        """The items of all processes, in rank order, on rank 0; an empty list on the others."""
        if self.size == 1:
            return [item]
        gathered: list[Any] | None = [None] * self.size if self.first else None
        dist.gather_object(item, gathered)
        return gathered or []

    def broadcast(self, item: T) -> T:
        """Rank 0's item, on every process."""
        if self.size == 1:
            return item
        box = [item if self.first else None]
        dist.broadcast_object_list(box)
        return box[0]  # type: ignore[return-value]

    def close(self) -> None:
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def _buckets(parameters: Iterable[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Parameters of at least `BUCKET` numbers together, in their order; the last ones may have fewer."""
    bucket: list[nn.Parameter] = []
    for parameter in parameters:
        bucket.append(parameter)
        if sum(each.numel() for each in bucket) >= BUCKET:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


class Compute(Processes):
    """The one thread of this process on which tensors are computed.

    All collectives run on it too, and so in the same order in every process.

    Args:
        thread: with exactly one thread.
    """

    def __init__(self, workers: Workers, thread: Executor) -> None:
        self.rank, self.size = workers.rank, workers.size
        self.workers, self.thread = workers, thread

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.thread, work)

    async def gather(self, item: T) -> list[T]:
        return await self.run(lambda: self.workers.gather(item))

    async def broadcast(self, item: T) -> T:
        return await self.run(lambda: self.workers.broadcast(item))

    async def any(self, value: bool) -> bool:
        return value if self.size == 1 else (await self.run(lambda: self.workers.sum([float(value)])))[0] > 0
