"""Weights that are passed through a file stay unchanged; a reader that gets none says why."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("verl")

import torch
from rlfactory_verl.cpu.environment import FILE_SYNC
from rlfactory_verl.cpu.file_sync import FileCheckpointEngine
from torch import Tensor

Workers = tuple[list[FileCheckpointEngine], list[FileCheckpointEngine]]


def _connected(folder: Path, deadline_s: float = 10.0) -> Workers:
    """Two workers of the trainer and two servers, connected as verl's manager does it."""
    from verl.checkpoint_engine.base import CheckpointEngineRegistry

    def made(**options: bool) -> FileCheckpointEngine:
        engine = CheckpointEngineRegistry.new(
            FILE_SYNC, bucket_size=1, folder=str(folder), deadline_s=deadline_s, **options
        )
        assert isinstance(engine, FileCheckpointEngine)
        return engine

    trainer, servers = [made(is_master=rank == 0) for rank in range(2)], [made() for _ in range(2)]
    _connect(trainer, servers)
    return trainer, servers


def _connect(trainer: list[FileCheckpointEngine], servers: list[FileCheckpointEngine]) -> None:
    metadata = [engine.prepare() for engine in (*trainer, *servers)]
    for engines, options in zip(
        (trainer, servers), FileCheckpointEngine.build_topology(len(trainer), len(servers), metadata), strict=True
    ):
        for rank, engine in enumerate(engines):
            engine.init_process_group(**{name: values[rank] for name, values in options.items()})


async def _received(server: FileCheckpointEngine) -> dict[str, Tensor]:
    return {name: tensor async for name, tensor in server.receive_weights(global_steps=1)}


async def _passed(workers: Workers, weights: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    trainer, servers = workers
    reading = [asyncio.ensure_future(_received(server)) for server in servers]
    await asyncio.sleep(0)  # the servers are there first
    for engine in reversed(trainer):
        await engine.send_weights(iter(weights.items()), global_steps=1)
    return list(await asyncio.gather(*reading))


def _finalize(engines: Iterable[FileCheckpointEngine]) -> None:
    for engine in engines:
        engine.finalize()


def test_every_server_gets_the_weights_and_no_file_stays(tmp_path: Path) -> None:
    workers = _connected(tmp_path)
    tied = torch.randn(3, 4)
    weights = {"embed": tied, "head": tied, "half": torch.ones(2, dtype=torch.bfloat16), "cut": torch.randn(4, 4).t()}
    for factor in (1.0, 2.0):  # two transfers, each with its own file
        sent = {name: tensor * factor if name == "cut" else tensor for name, tensor in weights.items()}
        for received in asyncio.run(_passed(workers, sent)):
            assert received.keys() == sent.keys()
            for name, tensor in sent.items():
                assert received[name].dtype == tensor.dtype
                assert torch.equal(received[name], tensor)
        _finalize(engine for engines in workers for engine in engines)
        assert list(tmp_path.iterdir()) == []
        _connect(*workers)


def test_a_file_that_is_not_yet_whole_is_not_read(tmp_path: Path) -> None:
    (trainer, *_), (server, *_) = _connected(tmp_path, deadline_s=0.05)
    assert trainer.path is not None
    trainer.path.with_suffix(".part").write_bytes(b"half of it")
    with pytest.raises(TimeoutError):
        asyncio.run(_received(server))


def test_a_trainer_that_does_not_come_is_named_within_the_deadline(tmp_path: Path) -> None:
    _, (server, *_) = _connected(tmp_path, deadline_s=0.05)
    with pytest.raises(TimeoutError, match=r"within 0\.05 s.*was not written.*trainer's log.*deadline_s"):
        asyncio.run(_received(server))
