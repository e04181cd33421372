"""``rlfactory doctor --engine verl``: what this machine lacks for a run with verl, and the command that fixes it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from rlfactory_core.errors import UsageError
from rlfactory_core.plugins.diagnostics import Check, DoctorRequest, installed, requirements_of, with_their_extras
from rlfactory_verl.doctor.install import in_words, install_for, server_arguments
from rlfactory_verl.doctor.machine import (
    SHARED_MEMORY,
    VLLM_DEADLINE_S,
    Gpu,
    Machine,
    has_gpu,
    load_vllm,
    read_machine,
)
from rlfactory_verl.doctor.requirements import CPU_SERVER, Device, required, specifiers, unmet

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 12)  # ours, and verl 0.9's own
LISTED = ("verl", "ray", "TransferQueue", "tensordict", "torch", "transformers")  # one line each; vLLM's follows

# The oldest driver for each major release of CUDA, from the CUDA toolkit's release notes (minor version compatibility).
OLDEST_DRIVER = {"12": 525, "13": 580}
OLDEST_CAPABILITY = 7.5  # Turing; CUDA 13 and the builds of vLLM for it leave out what is older
BFLOAT16_CAPABILITY = 8.0  # Ampere
VLLM_SHARE = 0.5  # of a GPU's memory: verl's default for rollout.gpu_memory_utilization

# Ray's object store (0.3 GB on a CPU), and verl's buckets of weights where they do not go from GPU to GPU: 64 MB each
# on a CPU, 2 GiB each by verl's default. A bucket that does not fit ends its process with a bus error and no message.
SHARED_MEMORY_GIB: dict[Device, float] = {"cpu": 1, "cuda": 4}
MEMORY_GIB: dict[Device, float] = {"cpu": 8, "cuda": 32}  # measured on a CPU: 6.7 GB at the peak with a tiny model
DISK_GIB: dict[Device, float] = {"cpu": 2, "cuda": 100}  # a checkpoint takes 12 bytes a parameter: 48 GB for 4 billion
LEAST_DISK_GIB = 2
RAY_DISK_FULL = 0.95  # Ray makes no more objects on a disk that is fuller
OPEN_FILES: dict[Device, int] = {"cpu": 4096, "cuda": 65536}  # Ray's advice for a cluster
LEAST_OPEN_FILES = 1024

LoadVllm = Callable[[Device], str]


def diagnose(request: DoctorRequest) -> Iterable[Check]:
    """Install what is missing if requested, then check everything that a run needs.

    Raises:
        UsageError: the requirements are unknown.
        InstallError: pip is absent or failed.
    """
    device: Device = "cpu" if request.device == "cpu" or not (request.device or has_gpu()) else "cuda"
    if request.install:
        install_for(device, request.say)
    return checks(device)


def checks(device: Device, machine: Machine | None = None, load: LoadVllm = load_vllm) -> Iterator[Check]:
    """The report's lines, in order. ``load`` tries vLLM for real and returns what is wrong with it, or nothing."""
    machine = machine or read_machine(device)
    yield _python(machine)
    yield from _packages(device)
    yield from _vllm(device, load)
    if device == "cuda":
        yield _cuda(machine)
        yield from (_gpu(gpu, machine.gpus) for gpu in machine.gpus)
        yield _flash_attention()
    yield from _memory(device, machine)
    yield from _disk(device, machine)
    yield _open_files(device, machine)
    yield from _leftovers(machine)


def install_command(device: Device) -> str:
    """The one command that installs everything for a device."""
    return f"rlfactory doctor --engine verl --device {device} --install"


def _python(machine: Machine) -> Check:
    found = ".".join(map(str, machine.python))
    if OLDEST_PYTHON <= machine.python <= NEWEST_PYTHON:
        return Check("ok", "Python", f"{found} (verl takes 3.11 to 3.12)")
    return Check("problem", "Python", f"{found}, verl takes 3.11 to 3.12: python3.12 -m venv .venv")


def _packages(device: Device) -> Iterator[Check]:
    try:
        requirements = list(with_their_extras(required(device)))
    except UsageError as error:
        yield Check("problem", "requirements", str(error))
        return
    bounds = specifiers(requirements)
    for name in LISTED:
        yield _package(name, bounds.get(name.lower()), device)
    listed = {name.lower() for name in (*LISTED, "vllm")}
    others = [item for item in requirements if item.name.lower() not in listed]
    wrong = list(dict.fromkeys(f"{item.name}{item.specifier}" for item in unmet(others)))
    if wrong:
        yield Check("problem", "others", f"{_shortened(wrong)} not there: {install_command(device)}")
    else:
        yield Check("ok", "others", f"{len({item.name.lower() for item in others})} more packages fit")
    if device == "cuda":
        yield _package("vllm", bounds.get("vllm"), device)


def _package(name: str, bounds: SpecifierSet | None, device: Device) -> Check:
    from packaging.requirements import Requirement

    found = installed(name)
    if found is None:
        return Check("problem", name, f"not installed{_expected(bounds)}: {install_command(device)}")
    if bounds is None:  # verl's bounds are unknown until verl is installed
        return Check("note", name, f"{found}; whether it fits is known once verl is installed")
    if bounds.contains(found, prereleases=True):
        return Check("ok", name, f"{found} ({bounds})")
    wanted = Requirement(f"{name}{bounds}")
    arguments = server_arguments() if str(wanted) == CPU_SERVER else ["install", str(wanted)]
    return Check("problem", name, f"{found}{_expected(bounds)}: {in_words(arguments)}")


def _vllm(device: Device, load: LoadVllm) -> Iterator[Check]:
    """Which of vLLM's two builds is installed (both are a package `vllm`, so they conflict), and whether it loads."""
    from packaging.requirements import Requirement

    server = Requirement(CPU_SERVER)
    wanted, other, others = (server.name, "vllm", "GPU") if device == "cpu" else ("vllm", server.name, "CPU")
    if installed(other):
        mend = f"{in_words(['uninstall', '-y', 'vllm', server.name])} && {install_command(device)}"
        yield Check("problem", other, f"{installed(other)} is for {others} machines: {mend}")
        return
    if device == "cpu":
        yield _package(server.name, server.specifier, device)
    if installed(wanted):
        yield _loads(device, load)


def _loads(device: Device, load: LoadVllm) -> Check:
    wrong = load(device)
    if not wrong:
        return Check("ok", "vllm loads", f"with its compiled part, for {device}")
    if f"{VLLM_DEADLINE_S} s" in wrong:
        return Check("problem", "vllm loads", f"it {wrong}; once the machine is less busy: {_doctor(device)}")
    again = server_arguments() if device == "cpu" else ["install", "--no-deps", f"vllm=={installed('vllm')}"]
    mend = in_words([again[0], "--force-reinstall", *again[1:]])
    return Check("problem", "vllm loads", f"it {wrong}. Once the versions above are right: {mend}")


def _cuda(machine: Machine) -> Check:
    torch = machine.torch
    if not machine.gpus:
        detail = "nvidia-smi names no GPU that CUDA_VISIBLE_DEVICES leaves visible; without one"
        return Check("problem", "CUDA", f"{detail}: {_doctor('cpu')}")
    driver = machine.gpus[0].driver
    if torch is None:
        return Check("note", "CUDA", f"driver {driver}; whether torch can use it is known once torch is installed")
    if torch.error:
        return Check("problem", "CUDA", f"torch cannot be imported ({torch.error}): {_again('torch')}")
    if not torch.cuda:
        return Check("problem", "CUDA", f"torch {installed('torch')} is a build without CUDA: {_again('torch')}")
    oldest = OLDEST_DRIVER.get(torch.cuda.partition(".")[0], 0)
    if int(driver.partition(".")[0] or 0) < oldest:
        mend = f"sudo apt-get install nvidia-driver-{oldest}-server"
        detail = f"driver {driver}, CUDA {torch.cuda} of torch needs {oldest} or newer; on Ubuntu"
        return Check("problem", "CUDA", f"{detail}: {mend}")
    if not torch.sees_gpu:
        detail = f"driver {driver} fits CUDA {torch.cuda}, but torch sees no GPU; for the reason"
        return Check("problem", "CUDA", f'{detail}: python -c "import torch; torch.cuda.init()"')
    return Check("ok", "CUDA", f"{torch.cuda} of torch, driver {driver} ({oldest} or newer)")


def _gpu(gpu: Gpu, gpus: tuple[Gpu, ...]) -> Check:
    what = f"GPU {gpu.index}"
    memory = f"{gpu.free_gib:.1f} of {gpu.total_gib:.1f} GiB free"
    detail = f"{gpu.name}, compute capability {gpu.capability}, {memory}"
    who = "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv"
    if gpu.capability < OLDEST_CAPABILITY:
        others = ",".join(str(item.index) for item in gpus if item.capability >= OLDEST_CAPABILITY)
        mend = f"export CUDA_VISIBLE_DEVICES={others}" if others else _doctor("cpu")
        return Check("problem", what, f"{detail}; vLLM needs a capability of {OLDEST_CAPABILITY} or more: {mend}")
    if gpu.free_gib < VLLM_SHARE * gpu.total_gib:
        share = f"vLLM alone takes {VLLM_SHARE:.0%} of it by default"
        return Check("problem", what, f"{detail}; {share}. Who uses it: {who}")
    if gpu.free_gib < 0.9 * gpu.total_gib:
        return Check("note", what, f"{detail}. Who uses it: {who}")
    if gpu.capability < BFLOAT16_CAPABILITY:
        return Check("note", what, f"{detail}; it has no bfloat16: run with -- actor_rollout_ref.rollout.dtype=half")
    return Check("ok", what, detail)


def _flash_attention() -> Check:
    """Optional; its version goes with torch's, and verl names the pair in its extra ``fsdp``."""
    name = "flash-attn"
    if installed(name):
        return Check("ok", name, str(installed(name)))
    pins = list(with_their_extras(requirements_of("verl", "fsdp"))) if installed("verl") else []
    wanted = next((str(item) for item in pins if item.name == name), name)
    return Check("note", name, f"not installed; trains long sequences faster: {in_words(['install', wanted])}")


def _memory(device: Device, machine: Machine) -> Iterator[Check]:
    need, free = SHARED_MEMORY_GIB[device], machine.shared_memory_free
    if free is None:
        yield Check("note", "shared memory", f"there is no {SHARED_MEMORY}; Ray uses files in {machine.ray_folder}")
    elif free < need:
        detail = f"{free:.2f} GiB free in {SHARED_MEMORY}, needs {need:g} for Ray's objects and weights on their way"
        mend = f"sudo mount -o remount,size={2 * need:g}G {SHARED_MEMORY}"
        yield Check("problem", "shared memory", f"{detail}; in Docker: `--shm-size={2 * need:g}g`; else: {mend}")
    else:
        yield Check("ok", "shared memory", f"{free:.1f} GiB free in {SHARED_MEMORY} (needs {need:g})")
    if machine.memory_free is not None:
        short = machine.memory_free < MEMORY_GIB[device]
        detail = f"{machine.memory_free:.1f} GiB free (a run needs about {MEMORY_GIB[device]:g})"
        mend = ". What takes most of it: ps aux --sort=-rss | head"
        yield Check("note" if short else "ok", "memory", detail + (mend if short else ""))


def _disk(device: Device, machine: Machine) -> Iterator[Check]:
    free = f"{machine.disk_free:.1f} GiB free here, where runs go by default"
    elsewhere = "rlfactory run --out /path/on/a/larger/disk …"
    size = "a checkpoint takes 12 bytes a parameter"
    if machine.disk_free < LEAST_DISK_GIB:
        yield Check("problem", "disk", f"{free}, needs {LEAST_DISK_GIB} or more ({size}). Elsewhere: {elsewhere}")
    elif machine.disk_free < DISK_GIB[device]:
        yield Check("note", "disk", f"{free}; {size}. Elsewhere: {elsewhere}")
    else:
        yield Check("ok", "disk", f"{free}; {size}")
    if machine.ray_disk_used > RAY_DISK_FULL:
        detail = (
            f"the disk of {machine.ray_folder} is {machine.ray_disk_used:.0%} full, Ray stops at {RAY_DISK_FULL:.0%}"
        )
        yield Check("problem", "Ray's disk", f"{detail}: export RAY_TMPDIR=/path/on/a/larger/disk")


def _open_files(device: Device, machine: Machine) -> Check:
    limit, advised = machine.open_files, OPEN_FILES[device]
    if limit < 0 or limit >= advised:  # a negative number: no limit
        return Check("ok", "open files", f"{'no limit' if limit < 0 else limit} (needs {advised})")
    detail = f"{limit}, Ray wants {advised}: ulimit -n {advised}"
    return Check("problem" if limit < LEAST_OPEN_FILES else "note", "open files", detail)


def _leftovers(machine: Machine) -> Iterator[Check]:
    left = machine.others
    if left.ray_address:
        detail = f"RAY_ADDRESS={left.ray_address}: a run joins that cluster. To start one of its own: unset RAY_ADDRESS"
        yield Check("note", "Ray", detail)
    if left.processes:
        detail = f"already running: {_shortened(left.processes)}. To end everything of Ray here, if no run needs it"
        yield Check("note", "Ray", f"{detail}: ray stop --force")
    elif left.shared_files:
        files = shlex.join(map(str, left.shared_files))
        yield Check("note", "leftovers", f"{len(left.shared_files)} files of ended runs hold shared memory: rm {files}")
    if not (left.processes or left.ray_address):
        yield Check("ok", "Ray", "nothing of it runs here; a run starts its own and ends it")


def _expected(bounds: SpecifierSet | None) -> str:
    return f", expected {bounds}" if bounds else ""


def _doctor(device: Device) -> str:
    return f"rlfactory doctor --engine verl --device {device}"


def _again(name: str) -> str:
    return in_words(
        ["install", "--force-reinstall", "--no-deps", f"{name}=={(installed(name) or '').partition('+')[0]}"]
    )


def _shortened(items: list[str] | tuple[str, ...], most: int = 6) -> str:
    rest = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + rest
