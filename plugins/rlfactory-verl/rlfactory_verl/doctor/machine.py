"""Reads what this machine offers for a run with verl, Ray and vLLM; `checks` judges it."""

from __future__ import annotations

import csv
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rlfactory_core.plugins.diagnostics import installed
from rlfactory_verl.doctor.requirements import Device

SMI = "nvidia-smi"
SMI_DEADLINE_S = 30
VLLM_DEADLINE_S = 180  # the first import compiles the byte code of some thousand files
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - not a temporary file: where Ray and verl share memory
WEIGHT_FILES = "verl_weights_*"  # verl's names of its shared-memory buckets
PROCESSES = ("raylet", "gcs_server", "VLLM::")

# Loads vLLM's compiled part too: a build for another torch imports well and fails there. `vllm.platforms` alone says
# whether vLLM takes the machine for a CPU or a GPU machine.
_LOAD_VLLM = """
import sys, torch
from vllm.platforms import current_platform
current_platform.import_kernels()
if current_platform.device_type == "cpu":
    torch.ops._C.silu_and_mul
sys.stdout.write("device=" + current_platform.device_type)
"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as nvidia-smi reports it."""

    index: int
    name: str
    driver: str  # for example 580.65.06
    capability: float  # compute capability, for example 9.0
    total_gib: float
    free_gib: float


@dataclass(frozen=True, slots=True)
class Torch:
    """The installed torch; an empty error means that it was imported."""

    error: str  # why it cannot be imported
    cuda: str  # the CUDA release it was built for, for example 13.0; empty for a CPU build
    sees_gpu: bool


@dataclass(frozen=True, slots=True)
class Others:
    """Processes and files of earlier or other runs."""

    processes: tuple[str, ...]  # name and process id
    shared_files: tuple[Path, ...]  # buckets of weights in shared memory
    ray_address: str  # of the environment


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts of this machine. Sizes are in GiB; those read from Linux's files are None if the file is missing."""

    python: tuple[int, int]
    gpus: tuple[Gpu, ...]
    torch: Torch | None  # None: not installed
    shared_memory_free: float | None
    memory_free: float | None  # the smaller of the machine's and this container's
    disk_free: float  # where runs are written by default
    ray_folder: Path  # Ray's logs, and the objects that do not fit into shared memory
    ray_disk_used: float  # 0 to 1
    open_files: int
    others: Others


def has_gpu() -> bool:
    """Whether this is a GPU machine: nvidia-smi is there, or torch sees a CUDA device."""
    if shutil.which(SMI):
        return True
    torch = _torch()
    return torch is not None and torch.sees_gpu


def read_machine(device: Device) -> Machine:
    """Read all facts; imports torch only if the device is a GPU."""
    ray_folder = Path(os.environ.get("RAY_TMPDIR") or "/tmp")  # noqa: S108 - Ray's own default
    ray_disk = shutil.disk_usage(ray_folder)
    on_gpu = device == "cuda"
    return Machine(
        python=(sys.version_info.major, sys.version_info.minor),
        gpus=_gpus() if on_gpu else (),
        torch=_torch() if on_gpu else None,
        shared_memory_free=_gib(shutil.disk_usage(SHARED_MEMORY).free) if SHARED_MEMORY.is_dir() else None,
        memory_free=_memory_free(),
        disk_free=_gib(shutil.disk_usage(".").free),
        ray_folder=ray_folder,
        ray_disk_used=1 - ray_disk.free / ray_disk.total,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        others=_others(),
    )


def load_vllm(device: Device) -> str:
    """Load vLLM in a separate process. Returns the error, or an empty text.

    Loading is slow, changes the process, and ends it if a compiled part fails.
    """
    try:
        done = subprocess.run(  # noqa: S603 - our own code in this interpreter
            [sys.executable, "-c", _LOAD_VLLM],
            env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"},
            capture_output=True,
            text=True,
            timeout=VLLM_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"is not loaded after {VLLM_DEADLINE_S} s"
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return f"cannot be loaded: {lines[-1] if lines else f'its process ended with {done.returncode}'}"
    found = done.stdout.rpartition("device=")[2]
    return "" if found == device else f"takes this for a machine with device '{found}', expected '{device}'"


def _torch() -> Torch | None:
    if installed("torch") is None:
        return None
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a shared library is missing
        return Torch(error=str(error), cuda="", sees_gpu=False)
    return Torch(error="", cuda=torch.version.cuda or "", sees_gpu=torch.cuda.is_available())


def _gpus() -> tuple[Gpu, ...]:
    """The GPUs in CUDA_VISIBLE_DEVICES; none if nvidia-smi is absent or fails."""
    query = "index,uuid,name,driver_version,compute_cap,memory.total,memory.free"
    try:
        listed = subprocess.run(  # noqa: S603
            [shutil.which(SMI) or SMI, f"--query-gpu={query}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=SMI_DEADLINE_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = None if visible is None else {item.strip() for item in visible.split(",")}
    gpus = []
    for index, uuid, name, driver, capability, total, free in csv.reader(listed.splitlines(), skipinitialspace=True):
        if chosen is None or chosen & {index, uuid}:
            gpus.append(Gpu(int(index), name, driver, _number(capability), _number(total) / 1024, _number(free) / 1024))
    return tuple(gpus)


def _memory_free() -> float | None:
    """The memory that can be used without swapping, within the container's limit if there is one."""
    free = [kib * 1024 for name, kib in _pairs(Path("/proc/meminfo")) if name == "MemAvailable:"]
    group = Path("/sys/fs/cgroup")
    limit, used = (_first_line(group / name) for name in ("memory.max", "memory.current"))
    if limit.isdigit() and used.isdigit():
        files = sum(size for name, size in _pairs(group / "memory.stat") if name == "inactive_file")
        free.append(int(limit) - int(used) + files)
    return _gib(min(free)) if free else None


def _others() -> Others:
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        name = _first_line(folder / "comm")
        if name.startswith(PROCESSES):
            processes.append(f"{name} {folder.name}")
    shared = tuple(sorted(SHARED_MEMORY.glob(WEIGHT_FILES)))
    return Others(tuple(sorted(processes)), shared, os.environ.get("RAY_ADDRESS", ""))


def _pairs(file: Path) -> list[tuple[str, int]]:
    try:
        rows = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return []
    return [(row[0], int(row[1])) for row in rows if len(row) > 1 and row[1].isdigit()]


def _first_line(file: Path) -> str:
    try:
        return file.read_text().partition("\n")[0]
    except OSError:  # not on this system, or a process that has just ended
        return ""


def _gib(size: float) -> float:
    return size / 2**30


def _number(text: str) -> float:
    """0 for ``[N/A]``, which nvidia-smi writes for a value that a GPU does not report."""
    return float(text) if text.replace(".", "").isdigit() else 0.0
