"""Weights from trainer to vLLM through a file, for ``separate_async`` on one machine without a GPU.

Every backend that verl 0.9.1 brings for trainers and servers in separate processes needs a GPU or RDMA. verl imports
this module, named by ``rollout.checkpoint_engine.custom_backend_module``, wherever it makes a backend: in the trainer's
workers, in the servers' workers and in the driver. It takes the class by the name in ``checkpoint_engine.backend`` and
hands it ``checkpoint_engine.engine_kwargs.<that name>`` as keyword arguments.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from rlfactory_verl.cpu.environment import FILE_SYNC

POLL_S = 0.02


@CheckpointEngineRegistry.register(FILE_SYNC)
class FileCheckpointEngine(CheckpointEngine):
    """The trainer's first worker writes a safetensors file, and every server reads it.

    The folder belongs to one run. The driver makes and removes it, so that no file outlives a killed run. A file of
    weights is removed as soon as all servers have read it. A file gets its name only once it is complete.

    Args:
        bucket_size: verl's bytes for each transfer; a file needs no buckets.
        is_master: Whether this process is the trainer's first worker.
        folder: Folder of this run alone, best on a file system in memory.
        deadline_s: Seconds that a server waits for the trainer.
    """

    def __init__(self, bucket_size: int, is_master: bool = False, *, folder: str, deadline_s: float = 120.0) -> None:
        del bucket_size
        self.is_master = is_master
        self.folder = Path(folder)
        self.deadline_s = deadline_s
        self.path: Path | None = None

    def prepare(self) -> str | None:
        """The file of this transfer, chosen by the trainer's first worker."""
        return str(self.folder / f"{uuid.uuid4().hex}.safetensors") if self.is_master else None

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Give every worker the path of the file."""
        return {"path": metadata[:1] * actor_wg_world_size}, {"path": metadata[:1] * rollout_world_size}

    def init_process_group(self, path: str) -> None:
        """Take the file of this transfer."""
        self.path = Path(path)

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> dict[str, float]:
        """Write the weights, after every worker has taken its part in gathering them."""
        kept = {}
        for name, tensor in weights:
            if self.is_master:  # a copy: tied weights share storage, which the format refuses
                kept[name] = tensor.detach().cpu().contiguous().clone()
        if not self.is_master:
            return {}
        assert self.path is not None, "verl calls init_process_group before send_weights"
        unnamed = self.path.with_suffix(".part")
        save_file(kept, unnamed)
        unnamed.replace(self.path)
        return {"sync/bytes": float(sum(tensor.nbytes for tensor in kept.values()))}

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """The weights by name.

        Raises:
            TimeoutError: When no file has come within the deadline.
        """
        assert self.path is not None, "verl calls init_process_group before receive_weights"
        end = time.monotonic() + self.deadline_s
        while not self.path.exists():
            if time.monotonic() > end:
                raise TimeoutError(
                    f"No weights from the trainer within {self.deadline_s:g} s: {self.path} was not written. The "
                    "trainer's log says why; if it was only slow, raise actor_rollout_ref.rollout.checkpoint_engine."
                    f"engine_kwargs.{FILE_SYNC}.deadline_s."
                )
            await asyncio.sleep(POLL_S)
        with safe_open(self.path, framework="pt") as stored:
            for name in stored.keys():  # noqa: SIM118 - not a dictionary
                yield name, stored.get_tensor(name)

    def finalize(self) -> None:
        """Remove the file; verl calls this when every server has read it."""
        if self.is_master and self.path is not None:
            self.path.unlink(missing_ok=True)
        self.path = None
